// Builds the nodes of messages: texts, tool calls as one folded line, thinking, pictures, files, endings.
import { html, render } from "../vendor/preact.js";
import { writeMarkdown } from "../markdown.js";
import { Diff, formatDuration, formatSize, formatTime, formatCount, formatMoney, makeIcon } from "../ui.js";
import { fetchBlob, text as fetchText } from "../api.js";
import { mayChange } from "../state.js";

/**
 * @typedef {object} Call
 * @property {string} id @property {string} name @property {any} [args] @property {string} [label] @property {string} [raw]
 */
/**
 * @typedef {object} Result
 * @property {string} call_id @property {string} [name] @property {string} [text] @property {number} [length]
 * @property {string} [problem] How a command failed, such as `exit code 2`. @property {boolean} [truncated] @property {boolean} [error] @property {string} [outcome] @property {number} [seconds]
 * @property {Picture[]} [images] @property {FileInfo[]} [files]
 */
/** @typedef {{id?: string, type?: string, size?: number, data?: string}} Picture */
/** @typedef {{id: string, name: string, type?: string, size?: number}} FileInfo */
/** @typedef {{input?: number, output?: number, cached?: number, reasoning?: number, cost?: number | null}} Usage */
/**
 * @typedef {object} Item
 * @property {number} number 0: not known yet. @property {string} [run] @property {number} [said] @property {string} role
 * @property {string} [text] @property {number} [created] @property {string} [model] @property {Usage | null} [usage]
 * @property {string} [thinking] @property {Call[]} [calls] @property {Result[]} [results] @property {Picture[]} [images]
 * @property {FileInfo[]} [files] @property {{id: number, name: string, details: string}[]} [attached] @property {boolean} [partial] @property {boolean} [truncated] @property {number} [length] @property {string} [sender] @property {string} [via]
 */

const COMMANDS = new Set(["terminal", "process", "execute_code"]);
const FOLD_CHARS = 30_000;
/** @type {Record<string, string>} */
const VERBS = {
  terminal: "Run", read_file: "Read", write_file: "Write", patch: "Edit", search_files: "Search", execute_code: "Run Python",
  todo: "Plan", delegate_task: "Delegate", web_search: "Search the web for", web_extract: "Read", clarify: "Ask",
  memory: "Memory", send_file: "Send", skill_view: "Read the skill", browser_navigate: "Open", vision_analyze: "Look at",
};
const MAIN = ["command", "path", "pattern", "query", "url", "question", "goal", "name", "prompt", "code", "content"];
/** @type {Record<string, string>} */
const OUTCOMES = { failed: "failed", denied: "denied", cancelled: "stopped", unknown: "result unknown" };
/** @type {Record<string, string>} */
export const ENDINGS = { stopped: "Stopped", failed: "Failed", out_of_steps: "Reached the step limit", gave_up: "Gave up" };

/**
 * @param {string} tag @param {string} [name] Its class. @param {...(Node | string | null | undefined | false)} children
 * @returns {HTMLElement}
 */
export function make(tag, name = "", ...children) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  for (const child of children) if (child) node.append(child);
  return node;
}

/** @param {string} label @param {string} act What the transcript does on a click. @param {string} [name] */
export function actButton(label, act, name = "link") {
  const button = /** @type {HTMLButtonElement} */ (make("button", name, label));
  button.type = "button";
  button.dataset.act = act;
  return button;
}

/** The call in a few words, if the server did not say them. @param {Call} call */
export function labelOf(call) {
  if (call.label) return call.label;
  const args = call.args && typeof call.args === "object" ? call.args : {};
  const main = MAIN.map((name) => args[name]).find((value) => typeof value === "string" && value);
  const rest = main ?? (call.name === "todo" ? "" : Object.entries(args).map(([name, value]) => `${name}=${String(value)}`).join(", "));
  return `${VERBS[call.name] ?? call.name} ${rest}`.replace(/\s+/g, " ").trim().slice(0, 300);
}

/** A long text, folded behind its length. @param {HTMLElement} box @param {string} text @param {(box: HTMLElement, text: string) => void} show */
function showFolded(box, text, show) {
  if (text.length <= FOLD_CHARS) {
    show(box, text);
    return;
  }
  show(box, text.slice(0, FOLD_CHARS / 3));
  const button = actButton(`Show all ${formatCount(text.length)} characters`, "");
  button.addEventListener("click", () => {
    box.replaceChildren();
    show(box, text);
  }, { once: true });
  box.append(make("p", "", button));
}

/** @param {HTMLElement} box @param {string} text */
const showPlain = (box, text) => box.append(text);

/** Builds nodes for one conversation, and connects results to their calls. */
export class MessageNodes {
  /** @param {string} session */
  constructor(session) {
    this.session = session;
    /** @type {Map<string, CallLine>} */
    this.calls = new Map();
  }

  /** @param {Item} item @returns {HTMLElement | null} Null if all of it is shown elsewhere. */
  build(item) {
    if (item.role === "tool") return this.#buildResults(item);
    const node = make("article", `msg ${item.role === "user" || item.role === "assistant" ? item.role : "note"}`);
    setNumber(node, item);
    node.append(make("h2", "hidden", HEADINGS[item.role] ?? "Note"));
    if (item.role === "user") this.#fillUser(node, item);
    else if (item.role === "assistant") this.#fillAssistant(node, item);
    else node.append(foldedText(item.role === "notice" ? "Note from alipes to the model" : "System", item.text ?? ""));
    return node;
  }

  /** @param {HTMLElement} node @param {Item} item */
  #fillUser(node, item) {
    const from = item.via === "page" ? `${item.sender === "owner" || !item.sender ? "Owner" : item.sender}, from the page` : item.sender;
    if (from && from !== "page") node.append(make("p", "from", isolated(from)));
    const body = make("div", "body plain");
    body.dir = "auto";
    showFolded(body, item.text ?? "", showPlain);
    if (item.text) node.append(body);
    if (item.truncated) node.append(cutNote(item));
    this.addAttachments(node, item);
  }

  /** @param {HTMLElement} node @param {Item} item */
  #fillAssistant(node, item) {
    if (item.thinking) node.append(foldedText("Thinking", item.thinking));
    if (item.text) {
      const body = make("div", "body");
      node.append(body);
      showFolded(body, item.text, writeMarkdown);
    }
    if (item.truncated) node.append(cutNote(item));
    this.addAttachments(node, item);
    for (const call of item.calls ?? []) node.append(this.addCall(call).node);
  }

  /** @param {Call} call @returns {CallLine} */
  addCall(call) {
    const known = this.calls.get(call.id);
    const line = known && !known.isKnown ? known : new CallLine(this.session, call);
    line.setCall(call);
    this.calls.set(call.id, line);
    return line;
  }

  /** @param {Call} call @param {(line: CallLine) => void} change */
  addCallState(call, change) {
    const line = this.calls.get(call.id);
    if (line) change(line);
  }

  /** @param {Item} item @returns {HTMLElement | null} */
  #buildResults(item) {
    const node = make("article", "msg assistant results");
    setNumber(node, item);
    for (const result of item.results ?? []) {
      let line = this.calls.get(result.call_id);
      if (!line) {
        line = new CallLine(this.session, { id: result.call_id, name: result.name ?? "tool", args: {} });
        line.isKnown = false;
        this.calls.set(result.call_id, line);
        node.append(line.node);
      }
      line.setResult(result, item.number);
      if (result.images?.length) node.append(this.#pictures(result.images, item.number, `results/${result.call_id}/`));
      if (result.files?.length) node.append(fileList(result.files));
    }
    return node.childElementCount ? node : null;
  }

  /** @param {HTMLElement} node @param {Item} item */
  addAttachments(node, item) {
    if (item.images?.length) node.append(this.#pictures(item.images, item.number, ""));
    if (item.files?.length) node.append(fileList(item.files));
    const others = (item.attached ?? []).filter((each) => !(item.images?.length && each.details.startsWith("image/")));
    if (others.length) node.append(make("div", "files", ...others.map((each) => fileButton(each.name, each.details, `sessions/${this.session}/messages/${item.number}/attached/${each.id}`))));
  }

  /** @param {Picture[]} pictures @param {number} number @param {string} part */
  #pictures(pictures, number, part) {
    const box = make("div", "pictures");
    pictures.forEach((picture, index) => {
      const place = make("div", "picture");
      box.append(place);
      const path = `sessions/${this.session}/messages/${number}/${part}images/${picture.id ?? index}`;
      showPicture(place, picture.data ? () => Promise.resolve(decodeData(picture)) : () => fetchBlob(path));
    });
    return box;
  }
}

/** @param {Item} item */
function cutNote(item) {
  return make("p", "from", `These are the first ${formatCount(item.text?.length)} of ${formatCount(item.length)} characters. An export has all.`);
}

/** @type {Record<string, string>} */
const HEADINGS = { user: "You", assistant: "alipes" };

/** @param {HTMLElement} node @param {Item} item */
export function setNumber(node, item) {
  if (item.number) node.dataset.number = String(item.number);
  node.dataset.run = item.run ?? "";
  if (item.said) node.dataset.said = String(item.said);
  items.set(node, item);
}

/** The items behind the nodes. @type {WeakMap<Element, Item>} */
export const items = new WeakMap();

/** @param {string} text */
export function isolated(text) {
  const node = document.createElement("bdi");
  node.textContent = text;
  return node;
}

/** @param {string} title @param {string} text */
export function foldedText(title, text) {
  const body = make("div", "folded-body plain");
  body.dir = "auto";
  const details = make("details", "folded", make("summary", "", title), body);
  details.addEventListener("toggle", () => {
    if (!body.childNodes.length) showFolded(body, text, showPlain);
  });
  return details;
}

/** @param {Picture} picture */
function decodeData(picture) {
  const bytes = Uint8Array.from(atob(picture.data ?? ""), (char) => char.charCodeAt(0));
  return new Blob([bytes], { type: picture.type });
}

/** @param {HTMLElement} place @param {() => Promise<Blob>} fetchPicture Shown when it comes near. */
function showPicture(place, fetchPicture) {
  const observer = new IntersectionObserver(async (entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    try {
      const blob = await fetchPicture();
      if (!/^image\/(png|jpeg|gif|webp)$/.test(blob.type)) throw new Error(blob.type);
      const image = document.createElement("img");
      image.alt = "Picture";
      image.src = URL.createObjectURL(blob);
      await image.decode();
      const button = actButton("", "enlarge", "enlarge");
      button.setAttribute("aria-label", "Enlarge the picture");
      button.append(image);
      place.replaceChildren(button);
    } catch {
      place.replaceChildren(make("span", "muted", "This picture cannot be shown."));
    }
  }, { rootMargin: "400px" });
  observer.observe(place);
}

/** @param {FileInfo[]} files */
function fileList(files) {
  return make("div", "files", ...files.map((file) => fileButton(file.name, file.size ? formatSize(file.size) : "", `downloads/${file.id}`)));
}

/** A file, which a click shows. @param {string} name @param {string} details @param {string} path Where the server has it. */
function fileButton(name, details, path) {
  const button = actButton("", "preview", "file");
  button.dataset.path = path;
  button.dataset.name = name;
  button.append(makeIcon("file"), isolated(name), make("span", "muted", ` ${details}`));
  return button;
}

/**
 * Which version of a message is shown, and the way to the others; replaces what was there before.
 * @param {HTMLElement} node @param {string} run @param {string[] | undefined} versions The runs, in order.
 */
export function setVersions(node, run, versions) {
  node.querySelector(":scope > .versions")?.remove();
  const at = versions?.indexOf(run) ?? -1;
  if (!versions || at < 0 || versions.length < 2) return;
  const box = make("div", "versions");
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", "Versions of this message");
  const step = (/** @type {number} */ to, /** @type {string} */ icon, /** @type {string} */ label) => {
    const button = actButton("", "version", "tool-button");
    button.dataset.run = versions[to] ?? "";
    button.disabled = !versions[to];
    button.setAttribute("aria-label", label);
    button.title = label;
    button.append(makeIcon(icon));
    return button;
  };
  box.append(step(at - 1, "left", "Previous version"), make("span", "", `${at + 1}/${versions.length}`), step(at + 1, "right", "Next version"));
  node.append(box);
}

/** @param {Result} result */
const outcomeOf = (result) => result.outcome ?? (result.error ? "failed" : "ok");

/** How a command failed, of a result that is shown live: its messages have no `problem`. @param {Call} call @param {string} text */
function problemOf(call, text) {
  if (!COMMANDS.has(call.name)) return "";
  const last = [...text.slice(-4_000).matchAll(/^\[(exit code -?\d+|killed by \w+|timed out[^\]]*)[^\]]*\]$/gm)].pop()?.[1] ?? "";
  return last === "exit code 0" ? "" : last;
}

/** One line for a call: label, time, outcome. It opens to the arguments and the result. */
export class CallLine {
  /** @param {string} session @param {Call} call */
  constructor(session, call) {
    this.#session = session;
    this.call = call;
    /** False: only its result is loaded yet. */
    this.isKnown = true;
    this.#mark = make("span", "call-mark");
    this.#label = make("span", "call-label");
    this.#outcome = make("span", "call-outcome");
    this.node = make("details", "call", make("summary", "", this.#mark, this.#label, this.#outcome));
    this.node.addEventListener("toggle", () => this.#fill());
    this.setCall(call);
  }

  #session;
  #mark;
  #label;
  #outcome;
  #filled = false;
  /** @type {Result | null} */
  #result = null;
  #number = 0;

  /** @param {Call} call */
  setCall(call) {
    this.call = call;
    this.#label.textContent = labelOf(call);
    this.#label.dir = "auto";
  }

  start() {
    if (this.#result) return;
    this.node.classList.add("running");
    this.#outcome.textContent = "running";
  }

  /** @param {string} text */
  setProgress(text) {
    if (!this.#result) this.#outcome.textContent = text.trim().split("\n").pop()?.slice(-80) || "running";
  }

  /** @param {Result} result @param {number} number Of the message with the result. */
  setResult(result, number) {
    const before = this.#result;
    this.#result = { ...before, ...result, seconds: result.seconds || before?.seconds };
    this.#number = number || this.#number;
    const problem = outcomeOf(result) === "ok" ? result.problem ?? problemOf(this.call, result.text ?? "") : "";
    const outcome = problem ? "failed" : outcomeOf(result);
    this.node.classList.remove("running");
    this.node.dataset.outcome = outcome;
    const seconds = this.#result.seconds;
    const words = [problem || OUTCOMES[outcome], seconds ? formatDuration(seconds) : ""].filter(Boolean);
    this.#outcome.textContent = words.join(" · ");
    if (!words.length) this.#outcome.append(make("span", "hidden", "done"));
    this.#filled = false;
    if (/** @type {HTMLDetailsElement} */ (this.node).open) this.#fill();
  }

  /** The turn ended without a result. */
  end() {
    if (!this.#result && this.node.classList.contains("running")) {
      this.node.classList.remove("running");
      this.#outcome.textContent = "stopped";
    }
  }

  #fill() {
    if (this.#filled || !(/** @type {HTMLDetailsElement} */ (this.node).open)) return;
    this.#filled = true;
    this.node.querySelector(".call-body")?.remove();
    const body = make("div", "call-body");
    const edit = editOf(this.call);
    for (const [name, value] of describeArguments(this.call)) {
      if (edit && name === "new_string") continue;
      if (edit && name === "old_string") {
        body.append(make("div", "call-name", "change"), makeDiff(edit));
        continue;
      }
      if (name === "patch" || name === "diff") {
        body.append(make("div", "call-name", name), makeDiff(value));
        continue;
      }
      const text = make("pre", "call-text");
      text.tabIndex = 0;
      showFolded(text, value, showPlain);
      body.append(make("div", "call-name", name), text);
    }
    if (this.#result) {
      const text = make("pre", "call-text");
      text.tabIndex = 0;
      const shown = this.#result.text ?? "";
      if (!this.#result.truncated && /^(diff --git |--- )/m.test(shown.slice(0, 400))) body.append(make("div", "call-name", "result"), makeDiff(shown));
      else {
        this.#showResult(text, this.#result);
        body.append(make("div", "call-name", "result"), text);
      }
    }
    this.node.append(body);
  }

  /** @param {HTMLElement} box @param {Result} result */
  #showResult(box, result) {
    const text = result.text ?? "";
    showFolded(box, text || "(empty)", showPlain);
    if (!result.truncated) return;
    const button = /** @type {HTMLButtonElement} */ (actButton(`Show all ${formatCount(result.length)} characters`, ""));
    button.addEventListener("click", async () => {
      button.disabled = true;
      const path = `sessions/${this.#session}/messages/${this.#number}/results/${encodeURIComponent(result.call_id)}`;
      const whole = await fetchText(path).catch((error) => `${text}\n\n${error.message}`);
      box.replaceChildren();
      showLong(box, whole);
    });
    box.append(make("p", "", button));
  }
}

/** @param {string} text */
function makeDiff(text) {
  const box = make("div", "call-diff");
  render(html`<${Diff} text=${text} />`, box);
  return box;
}

/** A text of any length, in pieces that the browser lays out when they are near. @param {HTMLElement} box @param {string} text */
function showLong(box, text) {
  const size = 20_000;
  for (let start = 0; start < text.length; ) {
    const line = text.indexOf("\n", start + size);
    const end = line < 0 || line > start + 2 * size ? Math.min(text.length, start + 2 * size) : line + 1;
    box.append(make("div", "piece", text.slice(start, end)));
    start = end;
  }
}

/** @param {Call} call @returns {[string, string][]} */
function describeArguments(call) {
  if (call.raw) return [["arguments", call.raw]];
  const args = call.args && typeof call.args === "object" ? call.args : {};
  return Object.entries(args).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value, null, 2)]);
}

/** The diff of a call that replaces a text, with what is equal at both ends as its context; empty for other calls. @param {Call} call */
function editOf({ args }) {
  if (typeof args?.old_string !== "string" || typeof args.new_string !== "string") return "";
  const before = args.old_string.split("\n");
  const after = args.new_string.split("\n");
  const shorter = Math.min(before.length, after.length);
  let start = 0;
  while (start < shorter && before[start] === after[start]) start++;
  let end = 0;
  while (end < shorter - start && before.at(-1 - end) === after.at(-1 - end)) end++;
  const mark = (/** @type {string} */ sign, /** @type {string[]} */ lines) => lines.map((line) => sign + line);
  return [...mark(" ", before.slice(0, start)), ...mark("-", before.slice(start, before.length - end)), ...mark("+", after.slice(start, after.length - end)),
    ...mark(" ", before.slice(before.length - end))].join("\n");
}

/** The line at the end of a run that was not answered, and what can be done. @param {string} id @param {{status?: string, detail?: string}} run */
export function buildEnding(id, run) {
  const words = ENDINGS[run.status ?? ""];
  if (!words) return null;
  const node = make("div", `ending ${run.status}`, words);
  const detail = run.detail && run.detail !== "user_stop" ? run.detail : "";
  if (detail) node.append(": ", isolated(detail.slice(0, 4_000)));
  else node.append(".");
  node.dataset.run = id;
  const acts = [["retry", "refresh", "Retry"], ["undo", "undo", "Undo"]].map(([act = "", icon = "", label = ""]) => {
    const button = actButton("", act, "button small");
    button.dataset.run = id;
    button.append(makeIcon(icon), make("span", "", label));
    return button;
  });
  if (mayChange.value) node.append(make("div", "ending-acts", ...acts));
  return node;
}

/** Time, model and usage of a message, shown on demand. @param {Item} item */
export function describeItem(item) {
  const used = item.usage;
  const parts = [
    item.created ? formatTime(item.created) : "",
    item.model,
    used ? `${formatCount(used.input)} tokens in${used.cached ? ` (${formatCount(used.cached)} cached)` : ""}` : "",
    used ? `${formatCount(used.output)} out` : "",
    used && typeof used.cost === "number" ? formatMoney(used.cost) : "",
  ];
  return parts.filter(Boolean).join(" · ") || "No details are recorded.";
}
