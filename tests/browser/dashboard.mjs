// The dashboard in a real browser: every page in light and dark, what agents say, and actions by keyboard.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { join } from "node:path";

import { AGENTS, Hub } from "./hub.mjs";

const require = createRequire(join(process.env.NUNCIO_PEERS, "browser", "package.json"));
const { chromium } = require("playwright-core");
const axe = require("axe-core");

const pictures = process.argv[2];
if (pictures) mkdirSync(pictures, { recursive: true });

const found = ["chromium-headless-shell", "chromium"]
  .map((name) => spawnSync("which", [name]).stdout?.toString().trim())
  .find(Boolean);
assert(found, "no browser: run tests/browser/setup");

const LIMIT = 15_000; // milliseconds for one step
const HOSTILE = `</script><script>document.title="owned"</script><img src=x onerror="document.title='owned'">`;
const BIDI = "invoice \u202Efdp.exe\u2066 \u200B end";

// A page that notes what must not happen.
async function open(browser, hub, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(LIMIT);
  const faults = [];
  context.on("page", (page) => {
    page.on("console", (message) => {
      // The line for a refused page or a lost stream is the browser's own.
      const isExpected = /Failed to load resource|net::ERR_/.test(message.text());
      if (["error", "warning"].includes(message.type()) && !isExpected) faults.push(`console: ${message.text()}`);
    });
    page.on("pageerror", (error) => faults.push(`error: ${error}`));
    page.on("dialog", (dialog) => { faults.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
    page.on("request", (request) => {
      if (!request.url().startsWith(`${hub.admin}/`)) faults.push(`request to ${request.url()}`);
    });
  });
  const page = await context.newPage();
  return { context, page, faults };
}

async function signIn(page, hub) {
  const url = await hub.command("ui", "--print", "--admin", hub.admin, "--admin-token-file", "token");
  await page.goto(url);
  assert.equal(new URL(page.url()).pathname, "/ui", "the code signs in");
}

async function judge(page, name) {
  // The policy of the page refuses scripts that a test adds, so axe runs through the debugger.
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() =>
    globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
  const told = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.html} ${node.failureSummary}`).join("; ")}`);
  assert.deepEqual(told, [], `${name}: accessibility`);
}

async function picture(page, name) {
  if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
}

// A worker of the mailbox takes a message; it answers with many events, or with files of hostile names.
async function work(hub, events) {
  const task = await hub.send("post", [{ text: "work" }], { wait: false });
  const secret = (hub.worker ??= (await hub.api("/mailboxes/post:rotate", "POST", {})).secret);
  const call = async (path, lines = "", first = 1) => {
    const headers = { authorization: `Bearer ${secret}`, "nuncio-worker": "w1", "nuncio-first": String(first) };
    const answer = await fetch(`${hub.url}/mailboxes/post${path}`, { method: "POST", headers, body: lines });
    if (!answer.ok) assert.fail(`${path}: ${await answer.text()}`);
    return answer.json();
  };
  const { lease, taskId } = await call(":claim");
  assert.equal(taskId, task.id);
  const lines = Array.from({ length: events }, (_, n) => ({ artifact: { artifactId: "log", parts: [{ text: `${n} ${HOSTILE}` }] }, append: n > 0 }));
  lines.push({ artifact: { artifactId: "a/b?c", name: HOSTILE, parts: [
    { raw: Buffer.from(`<script>document.title="owned"</script>`).toString("base64"), filename: `../${BIDI}${HOSTILE}.html`, mediaType: "text/html" },
    { data: { html: HOSTILE } },
  ] } });
  lines.push({ completed: "done" });
  for (let first = 0; first < lines.length; first += 1_000) {
    const some = lines.slice(first, first + 1_000).map((line) => JSON.stringify(line));
    await call(`/leases/${lease}:update`, some.join("\n"), first + 1);
  }
  return task;
}

async function make(hub) {
  const long = "x".repeat(10 * 1024 * 1024);
  const text = [{ text: HOSTILE }, { text: BIDI }, { data: { html: HOSTILE } }, { raw: "aGk=", filename: `${HOSTILE}${BIDI}.pdf`, mediaType: "application/pdf" }];
  const tasks = {
    hostile: await hub.send("echo", text, { context: `c-${HOSTILE}` }),
    long: await hub.send("echo", [{ text: long }]),
    chunks: await hub.send("slow", [{ text: "300 1ms" }]),
    plain: await hub.send("echo", [{ text: "hello" }]),
    many: await work(hub, 10_000),
    file: await work(hub, 0),
    waiting: await hub.send("post", [{ text: "wait" }], { wait: false }),
    asking: await hub.send("careful", [{ text: "may I?" }], { wait: false }),
    // The last text of a room is that of its second seat.
    room: await hub.send("talk", [{ text: `Can you deliver? ${HOSTILE}` }], { wait: false }),
  };
  tasks.trial = await hub.api("/playground:send", "POST", { agent: "echo", parts: [{ text: HOSTILE }], metadata: { html: HOSTILE } });
  return tasks;
}

const path = (task) => `/ui/tasks/${encodeURIComponent(task.id)}`;

// The tests, in order: each gets the browser, the hub and the tasks.
const tests = {
  async "the login page is judged, refuses a wrong token and takes the right one"({ browser, hub }) {
    const { context, page, faults } = await open(browser, hub);
    const answer = await page.goto(`${hub.admin}/`);
    assert.equal(new URL(page.url()).pathname, "/ui/login", "the root leads there");
    assert.match(answer.headers()["content-security-policy"], /^default-src 'none'; script-src 'self'; .*trusted-types nuncio$/);
    await judge(page, "login");
    await picture(page, "login");
    await page.fill("#admin_token", "wrong");
    await page.keyboard.press("Enter");
    await page.waitForSelector("[role=alert]");
    await page.fill("#admin_token", hub.token);
    await page.keyboard.press("Enter");
    await page.waitForURL(`${hub.admin}/ui`);
    const [cookie] = await context.cookies();
    assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, "Strict"]);
    assert(cookie.name.endsWith(`_${new URL(hub.admin).port}`));
    assert.deepEqual(faults, []);
    await context.close();
  },

  async "a code signs in once"({ browser, hub }) {
    const url = await hub.command("ui", "--print", "--admin", hub.admin, "--admin-token-file", "token");
    for (const [expected, status] of [["/ui", 200], ["/ui/login", 401]]) {
      const { context, page } = await open(browser, hub);
      const answer = await page.goto(url);
      assert.deepEqual([new URL(page.url()).pathname, answer.status()], [expected, status]);
      await context.close();
    }
  },

  async "every page is whole in light and dark, wide and narrow"({ browser, hub, tasks }) {
    const context = encodeURIComponent(tasks.hostile.contextId);
    const pages = {
      overview: "/ui", tasks: "/ui/tasks", filtered: "/ui/tasks?state=completed&since=1h", none: "/ui/tasks?state=rejected",
      task: path(tasks.hostile), chunks: path(tasks.chunks), later: `${path(tasks.chunks)}?after=100`, context: `/ui/contexts/${context}`,
      agents: "/ui/agents", agent: "/ui/agents/echo", card: "/ui/agents/echo/card", agent_access: "/ui/agents/echo/access",
      setup: "/ui/agents/echo/setup", remote: "/ui/agents/far", remote_card: "/ui/agents/far/card", deliveries: "/ui/deliveries", access: "/ui/access", trail: "/ui/trail", config: "/ui/config",
      system: "/ui/system", try: "/ui/try?agent=echo", trial: `/ui/try?trial=${tasks.trial.id}`,
      many: path(tasks.many), observed: "/ui/agents/echo/observed", remote_observed: "/ui/agents/far/observed",
      agent_tasks: "/ui/agents/slow/tasks", mailboxes: "/ui/mailboxes", mailbox: "/ui/mailboxes/post",
      rooms: "/ui/rooms", room: "/ui/rooms/talk", leased: path(tasks.waiting), missing: "/ui/nothing", missing_task: "/ui/tasks/none",
    };
    for (const colorScheme of ["light", "dark"]) {
      for (const width of [1280, 390]) {
        const { context, page, faults } = await open(browser, hub, { colorScheme, viewport: { width, height: 900 } });
        await signIn(page, hub);
        for (const [name, address] of Object.entries(pages)) {
          const answer = await page.goto(hub.admin + address);
          assert.equal(answer.status(), name.startsWith("missing") ? 404 : 200, address);
          assert((await answer.body()).length < 1024 * 1024, `${address} is below a megabyte`);
          assert.notEqual(await page.title(), "owned");
          const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert(wider <= 0, `${address} is ${wider} pixels wider than the window of ${width}`);
          await judge(page, `${address} ${colorScheme} ${width}`);
          await picture(page, `${name}-${colorScheme}-${width}`);
        }
        assert.deepEqual(faults, []);
        await context.close();
      }
    }
  },

  async "what agents and callers say is text, shown when asked for, with a row in the trail"({ browser, hub, tasks }) {
    const { context, page, faults } = await open(browser, hub);
    await signIn(page, hub);
    for (const task of [tasks.hostile, tasks.long]) {
      await page.goto(hub.admin + path(task));
      assert.equal(await page.locator(".said").count(), 0, "hidden until asked for");
      await page.click("text=Show content");
      await page.waitForSelector(".said");
      const answer = await page.reload();
      assert((await answer.body()).length < 1024 * 1024, "ten megabytes of text leave the page small");
      assert.notEqual(await page.title(), "owned");
      await judge(page, "content");
    }
    await page.goto(hub.admin + path(tasks.hostile));
    await picture(page, "content");
    const said = await page.locator(".said").allInnerTexts();
    assert(said.some((text) => text.includes(HOSTILE)), "the text is shown as it is");
    assert(said.some((text) => text.includes("⟨U+202E⟩")), "marks of direction are visible");
    const rows = await hub.api("/audit?what=content-shown");
    assert.equal(rows.rows.length, 2);
    // What a browser would show elsewhere is a download here.
    await page.goto(hub.admin + path(tasks.file));
    const address = `${path(tasks.file)}/artifacts/a%2Fb%3Fc/1`;
    assert.equal((await page.request.get(hub.admin + address)).status(), 403, "not before the content is asked for");
    await page.click("text=Show content");
    await page.waitForSelector("#artifacts pre");
    await judge(page, "artifacts");
    await picture(page, "artifacts");
    const answer = await page.request.get(hub.admin + address);
    assert.equal(answer.headers()["x-content-type-options"], "nosniff");
    assert.match(answer.headers()["content-disposition"], /^attachment; filename="[A-Za-z0-9._-]+"$/);
    assert.equal(answer.headers()["content-type"], "application/octet-stream");
    const [file] = await Promise.all([page.waitForEvent("download"), page.click("#artifacts a >> nth=0")]);
    assert.match(file.suggestedFilename(), /^[A-Za-z0-9._-]+$/);
    assert.notEqual(await page.title(), "owned");
    await page.goto(hub.admin + path(tasks.hostile));
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("text=Export as JSON")]);
    assert.match(download.suggestedFilename(), /^task-[0-9a-zA-Z-]+\.json$/);
    await page.click("text=Hide content");
    await page.waitForSelector("text=Show content");
    assert.equal(await page.locator(".said").count(), 0);
    assert.deepEqual(faults, []);
    await context.close();
  },

  async "a page without scripts works: a filter, a theme, a key made"({ browser, hub }) {
    const { context, page, faults } = await open(browser, hub, { javaScriptEnabled: false });
    await signIn(page, hub);
    await page.goto(`${hub.admin}/ui/tasks`);
    await page.selectOption("select[name=agent]", "slow");
    await page.click("text=Filter");
    assert.match(page.url(), /agent=slow/);
    assert.equal(await page.locator("#tasks tr").count(), 1);
    await page.click(".theme button[value=dark]");
    assert.match(page.url(), /agent=slow/, "it stays on the page");
    assert.equal(await page.getAttribute("html", "data-theme"), "dark");
    assert.deepEqual(faults, []);
    await context.close();
  },

  async "a running task is followed, and canceled by keyboard alone"({ browser, hub }) {
    const task = await hub.send("echo", [{ text: "hold this" }], { wait: false });
    const { context, page, faults } = await open(browser, hub);
    await signIn(page, hub);
    await page.keyboard.press("/");
    await page.keyboard.type(task.id);
    await page.keyboard.press("Enter");
    await page.waitForURL(hub.admin + path(task));
    await page.waitForSelector("#task-head .is-working");
    await tabTo(page, "Cancel task");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#task-head .is-canceled");
    assert.match(await page.innerText("#notice"), /canceled/);
    // Another task ends while its page is open.
    const slow = await hub.send("slow", [{ text: "4 500ms" }], { wait: false });
    await page.goto(hub.admin + path(slow));
    await page.waitForSelector("#live:text('live')");
    await page.waitForSelector("#task-head .is-completed");
    assert.equal(await page.locator("text=Runs for").count(), 0);
    assert.deepEqual(faults, []);
    await context.close();
  },

  async "a key is made, used, rotated and revoked by keyboard alone"({ browser, hub }) {
    const { context, page, faults } = await open(browser, hub);
    await signIn(page, hub);
    await page.goto(`${hub.admin}/ui/access`);
    await page.focus("#name");
    await page.keyboard.type("team-a");
    await tabTo(page, "Create key");
    await page.keyboard.press("Enter");
    const secret = await page.innerText("#secret");
    assert.match(secret, /^nuncio_/);
    await page.reload();
    assert.equal(await page.locator("#secret").count(), 0, "a secret is shown once");
    const calls = async (key) => (await fetch(`${hub.url}/agents`, { headers: { authorization: `Bearer ${key}` } })).status;
    assert.equal(await calls(secret), 200);
    await tabTo(page, "Rotate team-a");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#secret");
    await tabTo(page, "Revoke team-a");
    await page.keyboard.press("Enter");
    await page.waitForSelector("text=The key team-a is revoked.");
    assert.equal(await calls(secret), 401);
    assert.deepEqual(faults, []);
    await context.close();
  },

  async "the configuration is read again, and an agent added and removed"({ browser, hub }) {
    const { context, page, faults } = await open(browser, hub);
    await signIn(page, hub);
    await page.goto(`${hub.admin}/ui/config`);
    await page.click("text=Read the configuration again");
    assert.match(await page.innerText("#notice"), /was read again/);
    await page.goto(`${hub.admin}/ui/agents/far`);
    await page.fill("#settings", "mode = ");
    await page.click("text=Change settings");
    await page.waitForSelector("text=Invalid input");
    await page.goto(`${hub.admin}/ui/agents/far`);
    await page.fill("#settings", `title = "Far away"`);
    await page.click("text=Change settings");
    await page.waitForSelector("text=The settings were changed.");
    await page.fill("#confirm", "far");
    await page.click("text=Remove agent");
    await page.waitForSelector("text=The agent far was removed");
    assert.deepEqual(faults, []);
    await context.close();
  },

  async "a delivery is sent again, dead ones are retried, and a host is paused and resumed"({ browser, hub }) {
    // A port on which nobody listens any more.
    const closed = createServer().listen(0, "127.0.0.1");
    await once(closed, "listening");
    const host = `127.0.0.1:${closed.address().port}`;
    closed.close();
    const task = await hub.send("echo", [{ text: "hello" }], { push: { url: `http://${host}/hook` } });
    const { context, page, faults } = await open(browser, hub);
    await signIn(page, hub);
    await page.goto(`${hub.admin}/ui/deliveries?task=${encodeURIComponent(task.id)}`);
    await judge(page, "deliveries");
    await picture(page, "delivery-hosts");
    await page.click("#deliveries td.id a");
    await judge(page, "delivery");
    await picture(page, "delivery");
    await tabTo(page, "Deliver again");
    await page.keyboard.press("Enter");
    await page.waitForSelector("text=It will be delivered again.");
    await page.goto(`${hub.admin}/ui/deliveries`);
    await page.fill("form[action='/ui/deliveries/redrive'] [name=since]", "1h");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#notice p:text('retried')");
    await tabTo(page, `Pause ${host}`);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#hosts .is-paused");
    await tabTo(page, `Resume ${host}`);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#hosts .is-ok");
    assert.deepEqual(faults, []);
    await context.close();
  },

  async "a message is tried by keyboard alone, with data, a file and notifications"({ browser, hub }) {
    const { context, page, faults } = await open(browser, hub);
    await signIn(page, hub);
    await page.goto(`${hub.admin}/ui/try?agent=echo`);
    await page.focus("#text");
    await page.keyboard.press("Control+A");
    await page.keyboard.type("tried");
    await page.click("#more summary");
    await page.fill("#data", `{"a": ["${"x".repeat(20)}"]}`);
    await page.fill("#metadata", `{"note": "n"}`);
    await page.setInputFiles("#file", { name: "a\"b.txt", mimeType: "text/plain", buffer: Buffer.from("in a file") });
    await page.check("[name=push]");
    await page.focus("#key");
    await tabTo(page, "Send");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#trial-task .is-completed");
    await page.waitForSelector("#frames .is-notified");
    assert.equal(await page.locator("#frames .is-invalid, #frames .is-error, #frames .is-deviates").count(), 0);
    assert((await page.locator("#frames .is-valid").count()) >= 3, "each frame has a mark");
    const request = await page.locator("#frame-1 pre").textContent();
    for (const text of ["tried", "in a file".length && Buffer.from("in a file").toString("base64"), `a\\"b.txt`, '"note": "n"']) assert(request.includes(text), `${text} in ${request}`);
    assert.match(await page.locator("#trial-curl").textContent(), /^curl /);
    await judge(page, "trial");
    await picture(page, "tried");
    const row = async () => (await hub.api("/audit?what=trial-sent")).rows.find((row) => row.agent === "echo" && row.principal === "operator");
    assert(await row(), "a row in the trail");
    // A running one is canceled.
    await page.goto(`${hub.admin}/ui/try?agent=echo`);
    await page.fill("#text", "hold it");
    await page.click("text=Send");
    await page.waitForSelector("#trial-task .is-working");
    await tabTo(page, "Cancel");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#trial-task .is-canceled");
    // What cannot be read is said, and nothing is sent.
    await page.goto(`${hub.admin}/ui/try?agent=echo`);
    await page.click("#more summary");
    await page.fill("#data", "{");
    await page.click("text=Send");
    await page.waitForSelector("text=data: expected JSON");
    assert.deepEqual(faults, []);
    await context.close();
  },

  async "an agent is audited by keyboard alone, and its report is a download"({ browser, hub }) {
    const { context, page, faults } = await open(browser, hub);
    context.setDefaultTimeout(90_000);
    await signIn(page, hub);
    await page.goto(`${hub.admin}/ui/agents/echo/observed`);
    await page.fill("#key", hub.key);
    await tabTo(page, "Run audit");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#notice");
    assert.match(await page.innerText("#notice"), /The audit has ended: grade [A-F]/);
    assert.equal(await page.locator("#audits tr").count(), 1);
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await judge(page, "audited");
      await picture(page, `audited-${colorScheme}`);
    }
    const [file] = await Promise.all([page.waitForEvent("download"), page.click("main >> text=HTML")]);
    assert.equal(file.suggestedFilename(), "audit-echo.html");
    assert.deepEqual(faults, []);
    await context.close();
  },

  async "a lease is taken over, and a caller accepted, by keyboard alone"({ browser, hub, tasks }) {
    const { context, page, faults } = await open(browser, hub);
    await signIn(page, hub);
    const claim = await fetch(`${hub.url}/mailboxes/post:claim`, { method: "POST", headers: { authorization: `Bearer ${hub.worker}`, "nuncio-worker": "w2" } });
    assert.equal((await claim.json()).taskId, tasks.waiting.id);
    await page.goto(`${hub.admin}/ui/mailboxes/post`);
    await page.waitForSelector("#turns .is-leased");
    await judge(page, "leased");
    await picture(page, "mailbox-leased");
    await tabTo(page, `Take over ${tasks.waiting.id}`);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#notice p:text('Leases that were ended: 1')");
    await page.waitForSelector("#turns .is-waiting");
    await page.goto(`${hub.admin}/ui/access`);
    await page.waitForSelector("#callers .is-waiting");
    await judge(page, "asking");
    await picture(page, "asking");
    await tabTo(page, "Accept tests at careful");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#callers .is-accepted");
    await page.goto(hub.admin + path(tasks.asking));
    await page.waitForSelector("#task-head .is-completed");
    assert.deepEqual(faults, []);
    await context.close();
  },

  async "a room is seen from both sides, and its round is canceled"({ browser, hub, tasks }) {
    const other = (await hub.api("/rooms/talk")).rounds[0].seats.find((seat) => seat.seat === "b");
    await hub.send("talk/b", [{ text: "On Friday." }], { wait: false, task: other.taskId });
    const { context, page, faults } = await open(browser, hub);
    await signIn(page, hub);
    await page.goto(`${hub.admin}/ui/rooms/talk`);
    assert.equal(await page.locator(".said").count(), 0, "hidden until asked for");
    await page.click("text=Show content");
    await page.waitForSelector(".said");
    const words = await page.locator(".said").allInnerTexts();
    assert.equal(words.filter((text) => text.includes("On Friday.")).length, 2, "on both sides");
    assert.notEqual(await page.title(), "owned");
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await judge(page, "room");
      await picture(page, `room-${colorScheme}`);
    }
    await tabTo(page, "Cancel open rounds");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#rounds .is-canceled");
    const rows = await hub.api("/audit?what=content-shown");
    assert(rows.rows.some((row) => row.detail === "room talk"), "a row in the trail");
    assert(tasks.room);
    assert.deepEqual(faults, []);
    await context.close();
  },

  async "the difference of a reload is shown, and why one was refused"({ browser, hub }) {
    const { context, page, faults } = await open(browser, hub);
    await signIn(page, hub);
    hub.configure(`${AGENTS}[limits]\ntasks = 77\n`);
    await page.goto(`${hub.admin}/ui/config`);
    await page.click("text=Read the configuration again");
    await page.waitForSelector("#changes-of-reload");
    const changes = await page.innerText("#changes-of-reload");
    assert.match(changes, /limits\.tasks/);
    assert.match(changes, /77/);
    await judge(page, "reloaded");
    await picture(page, "reloaded");
    hub.configure(`${AGENTS}[limits]\ntasks = "many"\n`);
    await page.click("text=Read the configuration again");
    await page.waitForSelector("text=Not possible now");
    await page.goto(`${hub.admin}/ui/config`);
    assert.match(await page.innerText("[role=alert]"), /refused/);
    await judge(page, "refused");
    hub.configure(AGENTS);
    assert.deepEqual(faults, []);
    await context.close();
  },

  async "every page has its data as JSON, as a command and as curl"({ browser, hub, tasks }) {
    const { context, page, faults } = await open(browser, hub);
    await signIn(page, hub);
    const pages = ["/ui", "/ui/tasks", path(tasks.plain), `/ui/contexts/${tasks.plain.contextId}`, "/ui/agents", "/ui/agents/echo", "/ui/agents/echo/observed",
      "/ui/try", `/ui/try?trial=${tasks.trial.id}`, "/ui/mailboxes", "/ui/mailboxes/post", "/ui/rooms", "/ui/rooms/talk", "/ui/deliveries",
      "/ui/access", "/ui/trail", "/ui/config", "/ui/system"];
    for (const address of pages) {
      await page.goto(hub.admin + address);
      const commands = await page.locator(".source .command code").allTextContents();
      assert.match(commands.at(-1) ?? "", /^curl /, address);
      const raw = await page.request.get(hub.admin + (await page.getAttribute(".source > p a", "href")));
      assert.deepEqual([raw.status(), raw.headers()["content-type"]], [200, "application/json"], address);
    }
    assert.deepEqual(faults, []);
    await context.close();
  },

  async "an empty hub says what to type next, and the first key leads to the content"({ browser }) {
    const empty = await Hub.start("");
    try {
      const { context, page, faults } = await open(browser, empty);
      await signIn(page, empty);
      for (const address of ["/ui", "/ui/tasks", "/ui/agents", "/ui/try", "/ui/mailboxes", "/ui/rooms", "/ui/deliveries"]) {
        await page.goto(empty.admin + address);
        assert.match(await page.locator(".empty code >> nth=0").textContent(), /^nuncio /, address);
        await judge(page, `${address} of an empty hub`);
      }
      await page.keyboard.press("Tab");
      assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to content");
      await page.keyboard.press("Enter");
      assert.equal(await page.evaluate(() => document.activeElement.id), "main");
      assert.deepEqual(faults, []);
      await context.close();
    } finally {
      await empty.end();
    }
  },

  async "without the stream a page asks every five seconds, and a hidden one has no stream"({ browser, hub }) {
    const { context, page, faults } = await open(browser, hub);
    await signIn(page, hub);
    await context.route("**/ui/api/v1/events", (route) => route.abort());
    await page.clock.install();
    await page.goto(`${hub.admin}/ui/tasks`);
    await page.waitForSelector("#live:text('every 5 s')");
    const task = await hub.send("echo", [{ text: "later" }]);
    await page.clock.runFor(7000);
    await page.waitForSelector(`[href="${path(task)}"]`);
    await context.unroute("**/ui/api/v1/events");
    await context.close();
    // A tab that is hidden ends its stream, and takes it up again when it is seen.
    const seen = await open(browser, hub);
    await signIn(seen.page, hub);
    await seen.page.goto(`${hub.admin}/ui/tasks`);
    await seen.page.waitForSelector("#live:text('live')");
    const turn = (hidden) => seen.page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
    const isEvents = (request) => request.url().endsWith("/events");
    const ended = Promise.race(["requestfailed", "requestfinished"].map((name) => seen.page.waitForEvent(name, isEvents)));
    await turn(true);
    await ended;
    const begun = seen.page.waitForRequest(isEvents);
    await turn(false);
    await begun;
    assert.deepEqual([...faults, ...seen.faults], []);
    await seen.context.close();
  },

  async "a viewer sees no action and no content"({ browser, hub, tasks }) {
    const { text } = await hub.api("/admin-tokens", "POST", { name: "viewer", role: "viewer" });
    const { context, page, faults } = await open(browser, hub);
    await page.goto(`${hub.admin}/ui/login`);
    await page.fill("#admin_token", text);
    await page.keyboard.press("Enter");
    await page.waitForURL(`${hub.admin}/ui`);
    for (const address of [path(tasks.plain), "/ui/access", "/ui/agents", "/ui/agents/echo", "/ui/deliveries", "/ui/config", "/ui/agents/echo/observed",
      `/ui/try?trial=${tasks.trial.id}`, "/ui/mailboxes/post", "/ui/rooms/talk"]) {
      await page.goto(hub.admin + address);
      if (/try|rooms/.test(address)) assert(!(await page.content()).includes("owned"), `${address} has no content`);
      assert.equal(await page.locator("main form[method=post]").count(), 0, address);
      await judge(page, address);
    }
    assert.deepEqual(faults, []);
    await context.close();
  },

  async "eight tabs work at once"({ browser, hub, tasks }) {
    const { context, page, faults } = await open(browser, hub);
    await signIn(page, hub);
    for (let tab = 0; tab < 8; tab++) {
      const other = await context.newPage();
      await other.goto(`${hub.admin}/ui/tasks`);
      await other.waitForSelector(`[href="${path(tasks.plain)}"]`);
    }
    assert.deepEqual(faults, []);
    await context.close();
  },

  async "a page stays while the hub restarts, and then asks to sign in"({ browser, hub }) {
    const { context, page, faults } = await open(browser, hub);
    await signIn(page, hub);
    await page.goto(`${hub.admin}/ui/tasks`);
    await hub.restart();
    await page.waitForSelector("#live:text('signed out')");
    await page.reload();
    assert.equal(new URL(page.url()).pathname, "/ui/login", "a new token ends all sessions");
    await signIn(page, hub);
    assert.deepEqual(faults, []);
    await context.close();
  },
};

// Moves the focus to the control of this name with the tabulator key.
async function tabTo(page, name) {
  for (let presses = 0; presses < 200; presses++) {
    await page.keyboard.press("Tab");
    const focused = await page.evaluate(() => document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent.trim());
    if (focused === name) return;
  }
  assert.fail(`the tabulator key does not reach ${name}`);
}

const hub = await Hub.start();
const browser = await chromium.launch({ executablePath: found, args: ["--no-sandbox"] });
let failed = 0;
try {
  const tasks = await make(hub);
  await hub.api("/agents", "POST", { name: "far", url: `${hub.url}/agents/slow` });
  const only = process.env.ONLY;
  for (const [name, test] of Object.entries(tests)) {
    if (only && !name.includes(only)) continue;
    const begin = Date.now();
    try {
      await test({ browser, hub, tasks });
      console.log(`ok    ${name} (${Date.now() - begin} ms)`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL  ${name}\n${error.stack ?? error}`);
    }
  }
} finally {
  await browser.close();
  await hub.end();
}
console.log(failed ? `${failed} of the tests in the browser failed` : "the dashboard works in the browser");
process.exit(failed ? 1 : 0);
