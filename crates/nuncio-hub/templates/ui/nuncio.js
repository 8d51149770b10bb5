// The one script of the dashboard. Pages work without it; with it they refresh themselves, times are relative, and
// ids can be copied. It runs under `trusted-types nuncio`, and no text from the hub ever becomes a script.
"use strict";

const REFRESH_MS = 1000; // at most one refresh per second, however many events there are
const POLL_MS = 5000; // interval while there is no stream
const RETRY_MS = 15000; // interval at which a lost stream is tried again
const live = document.getElementById("live");

// Parsed documents are inert: their scripts do not run, and the policy of the page holds for their nodes.
const policy = window.trustedTypes
  ? window.trustedTypes.createPolicy("nuncio", { createHTML: (text) => text })
  : { createHTML: (text) => text };

// Relative times.
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
function relative(at, now) {
  const seconds = Math.round((now - at) / 1000);
  const [unit, length] = UNITS.find(([, length]) => Math.abs(seconds) >= length) ?? ["s", 1];
  const amount = Math.floor(Math.abs(seconds) / length);
  if (amount === 0) return "now";
  return seconds < 0 ? `in ${amount} ${unit}` : `${amount} ${unit} ago`;
}
function showTimes() {
  const now = Date.now();
  for (const node of document.querySelectorAll("time[datetime]")) {
    const at = Date.parse(node.dateTime);
    if (Number.isNaN(at)) continue;
    const text = relative(at, now);
    if (node.textContent !== text) node.textContent = text;
    node.title = node.dateTime;
  }
}

// Copies a text, and says so on its button.
function showCopy() {
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll("button.copy[hidden]")) button.hidden = false;
}
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  let word = "Copied";
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
  } catch {
    word = "Not copied";
  }
  button.textContent = word;
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});

// Keys: / begins a search; g and a letter go to a page.
const PAGES = { o: "/ui", t: "/ui/tasks", a: "/ui/agents", d: "/ui/deliveries", k: "/ui/access" };
let prefix = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("search")?.focus();
  } else if (prefix && PAGES[event.key]) {
    location.assign(PAGES[event.key]);
  }
  prefix = event.key === "g";
});

// A refresh reads the page again and replaces the parts marked data-live that have changed, by their ids.
let last = 0;
let planned = null;
let running = false;
function plan() {
  if (planned || document.hidden) return;
  planned = setTimeout(refresh, Math.max(0, last + REFRESH_MS - Date.now()));
}
async function refresh() {
  planned = null;
  if (running) return plan();
  running = true;
  last = Date.now();
  try {
    const answer = await fetch(location.href, { headers: { "x-nuncio-live": "1" }, cache: "no-store" });
    if (answer.status === 401) return signedOut();
    if (answer.ok) replace(new DOMParser().parseFromString(policy.createHTML(await answer.text()), "text/html"));
  } catch {
    say("is-slow", "hub not reachable");
  } finally {
    running = false;
  }
}
function replace(page) {
  for (const old of document.querySelectorAll("[data-live][id]")) {
    const fresh = page.getElementById(old.id);
    if (!fresh || isUsed(old)) continue;
    for (const node of old.querySelectorAll("details[id][open]")) {
      fresh.querySelector(`#${CSS.escape(node.id)}`)?.setAttribute("open", "");
    }
    const known = new Set(Array.from(old.querySelectorAll("tr[id]"), (row) => row.id));
    if (old.dataset.text === undefined) old.dataset.text = "";
    const text = fresh.outerHTML;
    if (old.dataset.text === text) continue;
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const node = document.adoptNode(fresh);
    node.dataset.text = text;
    if (known.size) for (const row of node.querySelectorAll("tr[id]")) row.classList.toggle("is-fresh", !known.has(row.id));
    old.replaceWith(node);
    if (focused) focusAgain(node, focused);
  }
  showTimes();
  showCopy();
}
// A part in which somebody marks text stays as it is.
function isUsed(node) {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && node.contains(selection.anchorNode);
}
function focusAgain(node, focused) {
  const href = focused.getAttribute("href");
  const same = Array.from(node.querySelectorAll(focused.tagName)).find((other) =>
    href ? other.getAttribute("href") === href : other.dataset.copy === focused.dataset.copy);
  same?.focus({ preventScroll: true });
}
function say(kind, text) {
  if (!live) return;
  live.hidden = false;
  live.className = `live ${kind}`;
  if (live.textContent !== text) live.textContent = text;
}
function signedOut() {
  stop();
  say("is-slow", "signed out: reload the page");
}

// The stream of events. A browser has six connections per host, so of all visible tabs one holds the stream, by a
// lock, and tells the others. Without the stream each tab asks every five seconds.
const others = window.BroadcastChannel && navigator.locks ? new BroadcastChannel("nuncio") : null;
let stream = null;
let polling = null;
let retry = null;
let release = null;
function start() {
  if (release || document.hidden) return;
  poll();
  if (!window.EventSource) return;
  if (!others) {
    release = () => {};
    return follow();
  }
  const wish = new AbortController();
  release = () => wish.abort();
  const held = () => new Promise((done) => {
    release = done;
    follow();
  });
  navigator.locks.request("nuncio-stream", { signal: wish.signal }, held).catch(() => {});
  others.postMessage("hello");
}
function follow() {
  stream = new EventSource("/ui/api/v1/events");
  stream.onopen = () => tell("open");
  stream.onmessage = () => tell("event");
  stream.onerror = () => {
    stream?.close();
    stream = null;
    tell("lost");
    clearTimeout(retry);
    retry = setTimeout(() => release && follow(), RETRY_MS);
  };
}
function tell(what) {
  others?.postMessage(what);
  hear(what);
}
function hear(what) {
  if (document.hidden) return;
  if (what === "hello") {
    if (stream?.readyState === 1) others.postMessage("open");
  } else if (what === "lost") {
    poll();
  } else {
    clearInterval(polling);
    polling = null;
    say("is-on", "live");
    plan();
  }
}
if (others) others.onmessage = (event) => hear(event.data);
function poll() {
  if (polling) return;
  say("is-slow", "every 5 s");
  polling = setInterval(plan, POLL_MS);
  plan();
}
function stop() {
  stream?.close();
  stream = null;
  clearInterval(polling);
  polling = null;
  clearTimeout(retry);
  release?.();
  release = null;
}

showTimes();
showCopy();
setInterval(showTimes, 10000);
if (live && document.querySelector("[data-live][id]")) {
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", (event) => event.persisted && start());
  start();
}
