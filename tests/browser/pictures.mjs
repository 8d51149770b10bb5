// The pictures of the documentation: a hub with agents at work, in the browser. They are written to the folder that is
// named, and a person looks at them before they go to docs/images.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

import { AGENTS, Hub } from "./hub.mjs";

const require = createRequire(join(process.env.NUNCIO_PEERS, "browser", "package.json"));
const { chromium } = require("playwright-core");

const folder = process.argv[2];
assert(folder, "usage: tests/browser/pictures FOLDER");
mkdirSync(folder, { recursive: true });
const found = ["chromium-headless-shell", "chromium"]
  .map((name) => spawnSync("which", [name]).stdout?.toString().trim())
  .find(Boolean);
assert(found, "no browser: run tests/browser/setup");

const hub = await Hub.start(AGENTS.replaceAll("careful", "billing").replaceAll("post", "coder").replaceAll("talk", "procurement").replace("Talk", "Procurement"));
const browser = await chromium.launch({ executablePath: found, args: ["--no-sandbox"] });
try {
  await hub.api("/agents", "POST", { name: "countdown", url: `${hub.url}/agents/slow`, auth: { bearer: hub.key } });
  for (let number = 0; number < 30; number++) await hub.send(number % 3 ? "echo" : "slow", [{ text: number % 3 ? `Invoice ${4711 + number}, please.` : "4 1ms" }]);
  const task = await hub.send("slow", [{ text: "5 1ms" }]);
  await hub.send("echo", [{ text: "hold until Friday" }], { wait: false });
  for (const name of ["ann", "bob"]) {
    const { secret } = await hub.api("/keys", "POST", { name });
    hub.key = secret;
    await hub.send("billing", [{ text: "May I?" }], { wait: false });
    for (const words of ["build the site", "fix the flaky test", "write the release notes"]) await hub.send("coder", [{ text: words }], { wait: false });
  }
  const { secret } = await hub.api("/mailboxes/coder:rotate", "POST", {});
  for (const worker of ["laptop", "nas"]) {
    const claimed = await fetch(`${hub.url}/mailboxes/coder:claim`, { method: "POST", headers: { authorization: `Bearer ${secret}`, "nuncio-worker": worker } });
    const { lease } = await claimed.json();
    if (worker === "nas") await fetch(`${hub.url}/mailboxes/coder/leases/${lease}:update`, { method: "POST", headers: { authorization: `Bearer ${secret}`, "nuncio-worker": worker }, body: `{"text":"compiling … "}` });
  }
  const round = await hub.send("procurement", [{ text: "Can you deliver 40 tons on Friday?" }], { wait: false });
  const { rounds } = await hub.api("/rooms/procurement");
  const other = rounds[0].seats.find((seat) => seat.seat === "b").taskId;
  await hub.send("procurement/b", [{ text: "38 tons, at 7:00." }], { wait: false, task: other });
  await hub.send("procurement", [{ text: "38 tons will do. Gate 3?" }], { wait: false, task: round.id });
  const sent = await hub.api("/playground:send", "POST", { agent: "countdown", version: "0.3", binding: "JSONRPC", parts: [{ text: "3 1ms" }], metadata: { priority: "high" }, push: true });
  for (let trial; !trial?.ended || !trial.frames.some((frame) => frame.direction === "notified"); ) {
    trial = await hub.api(`/playground/${sent.id}`);
    assert.notEqual(trial.state, "TASK_STATE_FAILED", JSON.stringify(trial));
  }
  await hub.api("/agents/countdown:audit", "POST", { deadlineSeconds: 60 });

  const shoot = async (name, address, { dark = false, before = async () => {}, height = 800 } = {}) => {
    const context = await browser.newContext({ viewport: { width: 1200, height }, colorScheme: dark ? "dark" : "light" });
    const page = await context.newPage();
    await page.goto(await hub.command("ui", "--print", "--admin", hub.admin, "--admin-token-file", "token"));
    await page.goto(hub.admin + address);
    await before(page);
    await page.waitForLoadState();
    await page.screenshot({ path: join(folder, `dashboard-${name}.png`) });
    await context.close();
  };
  const showContent = async (page) => {
    await page.click("text=Show content");
    await page.waitForSelector(".said");
  };
  await shoot("overview", "/ui", { height: 860 });
  await shoot("task", `/ui/tasks/${task.id}`, { dark: true, before: showContent });
  await shoot("try", `/ui/try?trial=${sent.id}`, { before: (page) => page.waitForSelector("#frames .is-valid") });
  await shoot("observed", "/ui/agents/countdown/observed");
  await shoot("room", "/ui/rooms/procurement", { before: showContent });
  await shoot("mailbox", "/ui/mailboxes/coder");
} finally {
  await browser.close();
  await hub.end();
}
