// A hub for the tests: the real binary with its demo agents and a database, in a folder of its own.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const binary = process.env.NUNCIO_BIN;

// The environment of the developer must not reach the program under test.
const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("NUNCIO_")));

const COMMON = `listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
token_file = "token"
[data]
store = "nuncio.db"
[push]
allow_private = true
`;
export const AGENTS = `[agents.careful]
demo = "echo"
access = "ask"
[agents.post]
mailbox = {}
[rooms.talk]
title = "Talk"
`;

export class Hub {
  // A hub with agents of several kinds, or an empty one.
  static async start(agents = AGENTS) {
    const hub = new Hub();
    hub.folder = mkdtempSync(join(tmpdir(), "nuncio-browser-"));
    hub.configure(agents);
    await hub.run([]);
    hub.key = (await hub.api("/keys", "POST", { name: "tests" })).secret;
    return hub;
  }

  configure(agents) {
    writeFileSync(join(this.folder, "nuncio.toml"), `${agents ? "demo = true\n" : ""}${COMMON}${agents}`);
  }

  async run(options) {
    this.process = spawn(binary, ["serve", "--config", "nuncio.toml", "-o", "json", ...options], {
      cwd: this.folder,
      env: environment,
      stdio: ["ignore", "pipe", "pipe"],
    });
    let log = "";
    this.process.stderr.on("data", (data) => (log += data));
    const lines = createInterface({ input: this.process.stdout });
    const first = await Promise.race([once(lines, "line"), once(this.process, "exit").then(() => null)]);
    if (!first) throw new Error(`the hub did not start: ${log}`);
    this.facts = JSON.parse(first[0]);
    this.admin = `http://${this.facts.admin.listen}`;
    this.url = `http://${this.facts.listen}`;
    this.token = readFileSync(join(this.folder, "token"), "utf8").trim();
  }

  // Stops the hub and starts it at the same addresses.
  async restart() {
    await this.stop();
    await this.run(["--listen", this.facts.listen, "--admin", this.facts.admin.listen]);
  }

  async stop() {
    if (this.process.exitCode === null) {
      this.process.kill("SIGTERM");
      await once(this.process, "exit");
    }
  }

  async end() {
    await this.stop();
    rmSync(this.folder, { recursive: true });
  }

  // Runs a command of the binary and returns what it prints.
  async command(...words) {
    const child = spawn(binary, words, { cwd: this.folder, env: environment, stdio: ["ignore", "pipe", "inherit"] });
    let text = "";
    child.stdout.on("data", (data) => (text += data));
    const [code] = await once(child, "close");
    if (code !== 0) throw new Error(`nuncio ${words[0]} ended with ${code}`);
    return text.trim();
  }

  // Sends a message and returns the task.
  async send(agent, parts, options = {}) {
    const { context, task, wait = true, push } = options;
    const message = { messageId: crypto.randomUUID(), role: "ROLE_USER", parts, contextId: context, taskId: task };
    const configuration = { returnImmediately: !wait, taskPushNotificationConfig: push };
    const answer = await fetch(`${this.url}/agents/${agent}/message:send`, {
      method: "POST",
      headers: { "content-type": "application/a2a+json", "a2a-version": "1.0", authorization: `Bearer ${this.key}` },
      body: JSON.stringify({ message, configuration }),
    });
    const body = await answer.json();
    if (!answer.ok) throw new Error(`${agent}: ${JSON.stringify(body)}`);
    return body.task;
  }

  // Calls the admin API.
  async api(path, method = "GET", body = undefined) {
    const answer = await fetch(`${this.admin}/api/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${this.token}`, "content-type": "application/json" },
      body: body && JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(`${path}: ${await answer.text()}`);
    return answer.json();
  }
}
