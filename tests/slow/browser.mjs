// Drives a headless browser by its debugging pipe: reads commands as lines of JSON, answers each with a line of JSON.
import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";

const [program, profile] = process.argv.slice(2);
const browser = spawn(program, [
  "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync", "--hide-scrollbars",
  "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe", `--user-data-dir=${profile}`,
  "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--autoplay-policy=no-user-gesture-required",
], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
process.on("exit", () => browser.kill("SIGKILL"));

const waiting = new Map();
const faults = [];
let alarms = [];
let own = "";
let other;
let delayed = 0;
let next = 1;
let session;
const send = (method, params = {}) => new Promise((resolve, reject) => {
  const id = next++;
  waiting.set(id, { resolve, reject });
  browser.stdio[3].write(JSON.stringify({ id, method, params, sessionId: session }) + "\0");
});

let text = "";
browser.stdio[4].on("data", (chunk) => {
  text += chunk;
  const messages = text.split("\0");
  text = messages.pop();
  for (const message of messages.map((message) => JSON.parse(message))) {
    if (message.id) {
      const { resolve, reject } = waiting.get(message.id);
      waiting.delete(message.id);
      message.error ? reject(new Error(message.error.message)) : resolve(message.result);
    } else if (message.method === "Page.javascriptDialogOpening") {
      alarms.push(`dialog: ${message.params.message}`);
      send("Page.handleJavaScriptDialog", { accept: false });
    } else if (message.method === "Fetch.requestPaused") {
      setTimeout(() => send("Fetch.continueRequest", { requestId: message.params.requestId }), delayed);
    } else if (message.method === "Page.frameRequestedNavigation" || message.method === "Page.windowOpen") {
      alarms.push(`navigation: ${message.params.url}`);
    } else if (message.method === "Network.requestWillBeSent" && own) {
      const { url } = message.params.request;
      if (!url.startsWith(`${own}/`)) alarms.push(`request: ${url.slice(0, 200)}`);
    } else if (message.method === "Runtime.exceptionThrown") {
      const { exceptionDetails } = message.params;
      faults.push(exceptionDetails.exception?.description ?? exceptionDetails.text);
    } else if (message.method === "Runtime.consoleAPICalled" && ["error", "warning"].includes(message.params.type)) {
      faults.push(message.params.args.map((value) => value.value ?? value.description).join(" "));
    } else if (message.method === "Log.entryAdded" && message.params.entry.level === "error") {
      faults.push(`${message.params.entry.text} ${message.params.entry.url ?? ""}`);
    }
  }
});

const evaluate = async (expression) => {
  const { result, exceptionDetails } = await send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return result.value;
};
const until = async (expression, limit = 15000) => {
  const end = Date.now() + limit;
  for (;;) {
    const found = await evaluate(expression).catch(() => false);
    if (found) return found;
    if (Date.now() > end) throw new Error(`never true: ${expression}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};

const commands = {
  async open({ url, width = 1280, height = 900, dark = false, scripts = true }) {
    await send("Emulation.setScriptExecutionDisabled", { value: !scripts });
    await send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 600 });
    await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }] });
    await send("Page.navigate", { url });
    return until(`document.readyState === "complete" && location.href !== "about:blank"`);
  },
  evaluate: ({ expression }) => evaluate(expression),
  until: ({ expression, limit }) => until(expression, limit),
  async shot({ file }) {
    const { cssContentSize } = await send("Page.getLayoutMetrics");
    const clip = { x: 0, y: 0, width: cssContentSize.width, height: Math.min(cssContentSize.height, 2600), scale: 1 };
    const { data } = await send("Page.captureScreenshot", { format: "png", clip, captureBeyondViewport: true });
    writeFileSync(file, Buffer.from(data, "base64"));
  },
  // Presses a key, or types a text.
  async key({ key, text }) {
    if (text) return send("Input.insertText", { text });
    const windowsVirtualKeyCode = { Tab: 9, Enter: 13, " ": 32 }[key];
    const typed = { Enter: "\r", " ": " " }[key];
    await send("Input.dispatchKeyEvent", { type: "keyDown", key, code: key, windowsVirtualKeyCode, text: typed });
    await send("Input.dispatchKeyEvent", { type: "keyUp", key, code: key, windowsVirtualKeyCode });
  },
  // Lets requests to addresses fail that match patterns with `*`.
  async block({ urls }) {
    await send("Network.enable");
    await send("Network.setBlockedURLs", { urls });
  },
  // Answers requests to addresses that match a pattern with `*` later, by a number of milliseconds.
  async delay({ url, milliseconds }) {
    delayed = milliseconds;
    await send("Fetch.enable", { patterns: [{ urlPattern: url }] });
  },
  // Brings another tab to the front, so that the page is hidden; and the page's own again.
  async hide() {
    other = (await send("Target.createTarget", { url: "about:blank" })).targetId;
    await send("Target.activateTarget", { targetId: other });
    return until("document.hidden");
  },
  async show() {
    await send("Target.activateTarget", { targetId });
    await send("Target.closeTarget", { targetId: other });
    return until("!document.hidden");
  },
  async axe({ file }) {
    await evaluate(readFileSync(file, "utf8"));
    const found = await evaluate(`axe.run().then((found) => found.violations.map((v) =>
      ({ id: v.id, impact: v.impact, nodes: v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + " " + n.failureSummary) })))`);
    return found.filter((violation) => ["serious", "critical"].includes(violation.impact));
  },
  faults: () => faults,
  // Watches pages of one origin: runs a script before theirs, and keeps requests to elsewhere, dialogs and navigations.
  async watch({ origin, script }) {
    own = origin;
    await send("Network.enable");
    await send("Page.addScriptToEvaluateOnNewDocument", { source: script });
  },
  async bypass({ enabled }) { await send("Page.setBypassCSP", { enabled }); },
  alarms() {
    const kept = alarms;
    alarms = [];
    return kept;
  },
};

const { targetId } = await send("Target.createTarget", { url: "about:blank" });
({ sessionId: session } = await send("Target.attachToTarget", { targetId, flatten: true }));
for (const domain of ["Page", "Runtime", "Log"]) await send(`${domain}.enable`);
console.log(JSON.stringify({ ready: true }));
for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...values } = JSON.parse(line);
  try {
    console.log(JSON.stringify({ value: (await commands[command](values)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error.message ?? error) }));
  }
}
process.exit(0);
