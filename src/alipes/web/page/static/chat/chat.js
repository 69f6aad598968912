// The screen of a conversation: header, transcript, what happens beside it, and the composer.
import { html, signal, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { ApiError, get, patch, post } from "../api.js";
import { go, href, route } from "../router.js";
import { randomId } from "../storage.js";
import { mayChange, placeConversation } from "../state.js";
import { Button, attempt, makeIcon, toast } from "../ui.js";
import { Composer, insertion } from "./composer.js";
import { Conversation, branch } from "./conversation.js";
import { Header } from "./header.js";
import { ModelButton, useModels } from "./models.js";
import { Lazy } from "./lazy.js";
import { describeItem, items, make } from "./nodes.js";
import { outbox } from "./outbox.js";
import { OwnMessages, Waiting } from "./waiting.js";

/** Name of a conversation that the first message creates. */
const NEW_NAME = "page-";

/** @param {{route: import("../router.js").Route}} props */
export default function Chat({ route: { name, params } }) {
  const id = name === "c" ? params[0] ?? "" : "";
  const number = params[1] === "m" ? Number(params[2]) || 0 : 0;
  return html`<${Screen} key=${id || "new"} id=${id} number=${number} />`;
}

/** @param {{id: string, number: number}} props */
function Screen({ id, number }) {
  const [conversation] = useState(() => (id ? new Conversation(id) : null));
  const [options, setOptions] = useState(/** @type {Record<string, string>} */ ({}));
  const [checkpoints, setCheckpoints] = useState(false);
  const [sharing, setSharing] = useState(false);
  useEffect(() => {
    shown = conversation;
    return () => {
      if (shown === conversation) shown = null;
    };
  }, []);
  useEscape(conversation);
  /** @param {string} text */
  const onCommand = async (text) => {
    try {
      if (!conversation) return await beginWithCommand(text, options);
      const done = await conversation.runCommand(text);
      addReply(conversation.id, text, done);
      await act(done?.action, conversation);
      for (const run of done?.runs ?? []) conversation.follow(run);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      toast(error.message, { kind: "error" });
      insertion.value = text;
    }
  };
  /** @param {{key: string, text: string, body: any}} message */
  const onNew = async (message) => {
    const session = `${NEW_NAME}${message.key.slice(0, 10) || randomId().slice(0, 10)}`;
    const { effort, ...body } = message.body;
    if (effort && !(await attempt(() => beginWith(session, { effort, model: body.model })))) return (insertion.value = message.text);
    outbox.add({ ...message, session, body: { ...body, session } });
  };
  return html`<${Header} conversation=${conversation} onCheckpoints=${() => setCheckpoints(true)} onShare=${() => setSharing(true)} />
    ${conversation ? html`<${Log} conversation=${conversation} number=${number} replies=${replies.value.get(id) ?? []} />` : html`<${Welcome} />`}
    <${Foot} conversation=${conversation} options=${options} setOptions=${setOptions} onCommand=${onCommand} onNew=${onNew} />
    ${checkpoints && conversation && html`<${Lazy} path="./checkpoints.js" conversation=${conversation} onClose=${() => setCheckpoints(false)} />`}
    ${sharing && conversation && html`<${Lazy} path="./share.js" conversation=${conversation} onClose=${() => setSharing(false)} />`}`;
}

/** The conversation on the screen. @type {Conversation | null} */
let shown = null;

outbox.onAccepted = async (message) => {
  if (message.session.startsWith(NEW_NAME)) await openNew(message);
  else if (shown && message.session === shown.id && message.run) {
    if (shown.isRunning.value) await shown.update();
    else shown.follow(message.run);
  }
};

/** Show the conversation that a first message created. @param {import("./outbox.js").Sending} message */
async function openNew(message) {
  const session = await get(`sessions/${message.session}`);
  placeConversation(session);
  outbox.move(message.key, session.id);
  if (route.value.name === "new") go(`c/${session.id}`, { replace: true });
}

/** @typedef {{text: string, failed?: boolean, command: string}} Reply */

/** What commands replied, by conversation; the last ten of each. */
const replies = signal(/** @type {Map<string, Reply[]>} */ (new Map()));

/** @param {string} id @param {string} command @param {any} done */
function addReply(id, command, done) {
  if (!done?.text) return;
  const all = [...(replies.value.get(id) ?? []).slice(-9), { text: done.text, failed: done.failed, command }];
  replies.value = new Map(replies.value).set(id, all);
}

/** A new conversation with these options; returns its id. @param {string} name @param {Record<string, string>} options */
async function beginWith(name, { model = "", ...changes }) {
  const { id } = await post("sessions", { name, ...(model && { model }) });
  if (Object.keys(changes).length) await patch(`sessions/${id}`, changes);
  return id;
}

/** A conversation that begins with a command instead of a message. @param {string} text @param {Record<string, string>} options */
async function beginWithCommand(text, options) {
  const id = await beginWith(`${NEW_NAME}${randomId().slice(0, 10)}`, options);
  const done = await post(`sessions/${id}/commands`, { text });
  addReply(id, text, done);
  placeConversation(await get(`sessions/${id}`));
  go(`c/${done?.action?.session || id}`, { replace: true });
}

/** What a command asks the front end to do. @param {any} action @param {Conversation} conversation */
async function act(action, conversation) {
  if (!action) return;
  if (action.type === "show" && action.session && action.session !== conversation.id) go(`c/${action.session}`);
  else if (action.type === "put") insertion.value = action.text ?? "";
  else if (action.type === "copy") await navigator.clipboard.writeText(action.text ?? "");
  else if (action.type === "file") saveText(action.text ?? "", action.name || "export.txt");
}

/** @param {string} text @param {string} name */
function saveText(text, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Escape stops the run unless something else is open. @param {Conversation | null} conversation */
function useEscape(conversation) {
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    const onKey = (event) => {
      if (event.key !== "Escape" || event.isComposing || event.defaultPrevented || document.querySelector("dialog[open]")) return;
      if (conversation?.isRunning.value && mayChange.value) attempt(() => conversation.stop());
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

function Welcome() {
  const own = outbox.messages.value.filter((each) => each.session.startsWith(NEW_NAME));
  if (own.length) return html`<div class="log"><div class="column"><${OwnMessages} messages=${own} /></div></div>`;
  return html`<${Lazy} path="./welcome.js" />`;
}

/** @param {{conversation: Conversation, number: number, replies: Reply[]}} props */
function Log({ conversation, number, replies }) {
  const scroller = useRef(/** @type {any} */ (null));
  const sheets = useRef(/** @type {any} */ (null));
  const tail = useRef(/** @type {any} */ (null));
  const first = useRef(true);
  useLayoutEffect(() => {
    conversation.open(scroller.current, sheets.current, tail.current, number);
    return () => conversation.close();
  }, []);
  useEffect(() => {
    if (!first.current && number) attempt(() => conversation.show(number));
    first.current = false;
  }, [number]);
  const transcript = conversation.loaded.value ? conversation.transcript : null;
  const away = transcript && (!transcript.atEnd.value || transcript.moreAfter.value);
  return html`<div ref=${scroller} class="log" role="log" aria-live="off" aria-label="Messages" tabindex="0"
      onClick=${(/** @type {MouseEvent} */ event) => onAct(event, conversation)} onKeyDown=${moveFocus}
      onPointerOver=${showTools} onFocusIn=${showTools}>
    <div class="column">
      ${conversation.problem.value && html`<p class="problem" role="alert">${conversation.problem.value}</p><p><a href="#/new">Start a conversation</a> or choose one in the list.</p>`}
      <div ref=${sheets} class="sheets"></div>
      ${replies.map((each, index) => html`<${CommandReply} key=${index} reply=${each} />`)}
      <div ref=${tail}></div>
      ${conversation.questions.value.length > 0 && html`<${Lazy} path="./questions.js" conversation=${conversation} />`}
      ${conversation.notice.value && html`<p class="state" role="status" dir="auto">${conversation.notice.value}</p>`}
      ${conversation.isRunning.value && !conversation.questions.value.length && html`<p class="working"><span class="dot running"></span> <span class="muted small">Working</span></p>`}
      <${Waiting} conversation=${conversation} />
    </div>
    </div>
    <div class="hidden" aria-live="polite">${conversation.questions.value.length ? "An answer from you is needed. " : ""}${conversation.announcement.value}</div>
    ${away && html`<div class="to-end"><${Button} small icon="down" onClick=${() => conversation.showEnd()}>Latest<//></div>`}`;
}

/** @param {{reply: Reply}} props */
function CommandReply({ reply }) {
  return html`<article class=${`msg note reply${reply.failed ? " failed" : ""}`}><p class="from"><code>${reply.command}</code></p>
    <div class=${/\S {2,}\S/.test(reply.text) ? "plain columns" : "plain"} dir="auto">${reply.text}</div></article>`;
}

/** The buttons of the message under the pointer or with the focus. There is one set for the whole transcript. */
const tools = make("div", "msg-tools");

/** @param {Event} event */
function showTools(event) {
  const node = /** @type {Element} */ (event.target).closest?.("article[data-run]");
  if (!node || node === tools.parentElement) return;
  if (!tools.childElementCount) {
    for (const [act, icon, label] of TOOLS) {
      const button = /** @type {HTMLButtonElement} */ (make("button", "tool-button", makeIcon(icon)));
      button.type = "button";
      button.dataset.act = act;
      button.title = label;
      button.setAttribute("aria-label", label);
      tools.append(button);
    }
  }
  const item = items.get(node);
  const [copy, edit, again, undo, branchButton, link] = /** @type {HTMLElement[]} */ ([...tools.children]);
  const change = mayChange.value && Boolean(item?.run);
  const lastRun = [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".sheets article[data-run]"))].at(-1)?.dataset.run;
  if (copy) copy.hidden = !item?.text;
  if (edit) edit.hidden = !change || item?.role !== "user" || (item?.said ?? 1) > 1;
  if (again) again.hidden = !change || item?.role !== "assistant" || item?.run !== lastRun;
  if (undo) undo.hidden = !change || item?.role !== "user" || (item?.said ?? 1) > 1;
  if (branchButton) branchButton.hidden = !mayChange.value || !item?.number;
  if (link) link.hidden = !item?.number;
  node.append(tools);
}

/** What can be done with a message: what it does, its icon, its name. @type {[string, string, string][]} */
const TOOLS = [
  ["copy", "copy", "Copy"], ["edit", "edit", "Edit"], ["retry", "refresh", "Retry"], ["undo", "undo", "Undo"],
  ["branch", "branch", "Branch"], ["link", "link", "Copy the link"], ["details", "info", "Details"],
];

/** @param {MouseEvent} event @param {Conversation} conversation */
async function onAct(event, conversation) {
  const button = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-act]"));
  if (!button?.dataset.act) return;
  const node = button.closest("article");
  const item = node ? items.get(node) : undefined;
  await attempt(async () => {
    switch (button.dataset.act) {
      case "copy-code":
        return copyText(button, button.closest(".code")?.querySelector("code")?.textContent ?? "");
      case "copy":
        return copyText(button, item?.text ?? "");
      case "branch":
        return branch(conversation.id, item?.number);
      case "link":
        return copyText(button, `${location.href.split("#")[0]}${href("c", conversation.id, "m", item?.number ?? 0)}`);
      case "details":
        return toggleDetails(/** @type {HTMLElement} */ (node), item);
      case "edit":
        return node && item && (await import("./edit.js")).editMessage(node, item, conversation);
      case "retry":
        return conversation.retry();
      case "undo":
        await undo(conversation, button.dataset.run ?? item?.run ?? "");
        return toast("Undone. Files that were changed stay as they are.", { action: { label: "Redo", act: () => conversation.runCommand("/redo") } });
      case "version":
        return conversation.showVersion(button.dataset.run ?? "");
      case "enlarge":
        return (await import("./preview.js")).enlarge(button);
      case "preview":
        return (await import("./preview.js")).showFile(button.dataset.path ?? "", button.dataset.name ?? "file");
    }
  });
}

/** Take a run and all after it out, and put its message into the input. @param {Conversation} conversation @param {string} run */
async function undo(conversation, run) {
  const message = conversation.transcript?.find(run, 1);
  await conversation.rewind(run);
  insertion.value = (message && items.get(message)?.text) ?? "";
}

/** @param {HTMLElement} button @param {string} text */
async function copyText(button, text) {
  await navigator.clipboard.writeText(text);
  if (button.classList.contains("tool-button")) return toast("Copied.");
  const label = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = label), 1_500);
}

/** @param {HTMLElement} node @param {import("./nodes.js").Item | undefined} item */
function toggleDetails(node, item) {
  const shown = node.querySelector(":scope > .details");
  if (shown) shown.remove();
  else if (item) node.append(make("p", "details", describeItem(item)));
}

/** J and K, or Alt with the arrows, move between messages. @param {KeyboardEvent} event */
function moveFocus(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || event.ctrlKey || event.metaKey) return;
  const step = event.key === "j" || (event.altKey && event.key === "ArrowDown") ? 1 : event.key === "k" || (event.altKey && event.key === "ArrowUp") ? -1 : 0;
  if (!step) return;
  event.preventDefault();
  const log = /** @type {HTMLElement} */ (event.currentTarget);
  const all = /** @type {HTMLElement[]} */ ([...log.querySelectorAll("article[data-run]")]);
  const at = all.indexOf(/** @type {HTMLElement} */ (target.closest("article")));
  const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step];
  if (!next) return;
  next.tabIndex = -1;
  next.focus();
}

/** @param {Conversation} conversation */
function hasActivity(conversation) {
  const { todos, subagents, processes } = conversation.activity.value;
  return Boolean(todos?.length || subagents?.length || processes?.length);
}

/** @type {Record<string, string>} */
const MODES = { ask: "Ask first", edits: "Allow edits", plan: "Plan only", all: "Allow all" };
const EFFORTS = ["", "off", "minimal", "low", "medium", "high", "xhigh", "max"];

/**
 * @param {{conversation: Conversation | null, options: Record<string, string>, setOptions: (options: Record<string, string>) => void,
 *   onCommand: (text: string) => Promise<unknown>, onNew: (message: any) => void}} props
 */
function Foot({ conversation, options, setOptions, onCommand, onNew }) {
  const session = conversation?.session.value;
  if (!mayChange.value) return html`<footer class="foot"><p class="closed muted">This browser may only read.</p></footer>`;
  if (conversation?.problem.value) return null;
  if (session && session.current === false) {
    return html`<footer class="foot"><p class="closed muted">This conversation has ended where it took place. Branch it to continue here.
      <${Button} small icon="branch" onClick=${() => branch(session.id)}>Branch<//></p></footer>`;
  }
  return html`<footer class="foot">${conversation && hasActivity(conversation) && html`<${Lazy} path="./activity.js" conversation=${conversation} />`}
    <${Composer} conversation=${conversation} options=${options} onCommand=${onCommand} onNew=${onNew}>
      <${Choices} conversation=${conversation} options=${options} setOptions=${setOptions} />
    <//></footer>`;
}

/** Model, permission mode and effort; the model that answers is always named. @param {{conversation: Conversation | null, options: Record<string, string>, setOptions: (options: Record<string, string>) => void}} props */
function Choices({ conversation, options, setOptions }) {
  const known = useModels();
  const session = conversation?.session.value;
  const model = (conversation ? session?.model : options.model) ?? "";
  const mode = (conversation ? session?.permission_mode : options.permission_mode) || "ask";
  const effort = (conversation ? session?.effort : options.effort) ?? "";
  /** @param {string} name */
  const changed = (name) => (/** @type {Event} */ event) => {
    const { value } = /** @type {HTMLSelectElement} */ (event.currentTarget);
    if (conversation) attempt(() => conversation.change({ [name]: value }));
    else setOptions({ ...options, [name]: value });
  };
  const choose = (/** @type {string} */ value) => (conversation ? attempt(() => conversation.change({ model: value })) : setOptions({ ...options, model: value }));
  return html`<${ModelButton} known=${known} model=${model} onChoose=${choose} />
    <select class="quiet-select" aria-label="Permission mode" value=${mode} onChange=${changed("permission_mode")}>
      ${Object.entries(MODES).map(([value, label]) => html`<option key=${value} value=${value} selected=${value === mode}>${label}</option>`)}
    </select>
    <select class="quiet-select" aria-label="Thinking effort" value=${effort} onChange=${changed("effort")}>
      ${EFFORTS.map((value) => html`<option key=${value} value=${value} selected=${value === effort}>${value ? `Effort ${value}` : "Effort"}</option>`)}
    </select>`;
}
