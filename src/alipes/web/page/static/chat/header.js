// The head of a conversation: its title, where it comes from, and what can be done with it.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { del, download, get } from "../api.js";
import { go } from "../router.js";
import { mayChange, removeConversation } from "../state.js";
import { Icon, IconButton, attempt, confirm, toast } from "../ui.js";
import { drawer } from "./list.js";

/** @typedef {import("./conversation.js").Conversation} Conversation */

/** @param {{conversation: Conversation | null, onCheckpoints: () => void, onCommand: (text: string) => Promise<unknown>}} props */
export function Header({ conversation, onCheckpoints, onCommand }) {
  const session = conversation?.session.value;
  const [editing, setEditing] = useState(false);
  const title = session?.title || session?.preview || session?.name || (conversation ? "" : "New conversation");
  useEffect(() => {
    document.title = `${title || "Conversation"} · alipes`;
  }, [title]);
  /** @param {string} name */
  const rename = async (name) => {
    setEditing(false);
    if (conversation && name.trim() !== (session?.title ?? "")) await attempt(() => conversation.change({ title: name.trim() }));
  };
  return html`<header class="chat-head">
    <${IconButton} icon="menu" label="Conversations" class="only-phone" onClick=${() => (drawer.value = true)} />
    <div class="chat-title">
      ${editing
        ? html`<${TitleInput} title=${session?.title ?? title} done=${rename} cancel=${() => setEditing(false)} />`
        : html`<h1 title=${title} onDblClick=${() => mayChange.value && session && setEditing(true)}><bdi>${title}</bdi></h1>`}
      ${session?.origin && html`<p class="muted small"><bdi>${session.origin}</bdi></p>`}
    </div>
    ${conversation && session && html`<${Menu} label="Conversation menu" entries=${entries(conversation, { onCheckpoints, onCommand, onRename: () => setEditing(true) })} />`}
  </header>`;
}

/** @param {{title: string, done: (title: string) => void, cancel: () => void}} props */
function TitleInput({ title, done, cancel }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => input.current?.select(), []);
  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    if (event.isComposing) return;
    if (event.key === "Enter") done(input.current?.value ?? "");
    if (event.key === "Escape") {
      event.stopPropagation();
      cancel();
    }
  };
  return html`<input ref=${input} class="title-input" dir="auto" aria-label="Title" maxlength="200" value=${title} onKeyDown=${onKey}
    onBlur=${(/** @type {Event} */ event) => done(/** @type {HTMLInputElement} */ (event.currentTarget).value)} />`;
}

/** @typedef {{label: string, icon: string, act: () => unknown, danger?: boolean} | null} Entry */

/**
 * @param {Conversation} conversation
 * @param {{onCheckpoints: () => void, onCommand: (text: string) => Promise<unknown>, onRename: () => void}} acts @returns {Entry[]}
 */
function entries(conversation, { onCheckpoints, onCommand, onRename }) {
  const { id } = conversation;
  const name = (conversation.session.value?.title || "conversation").replace(/[^\p{L}\p{N} _-]+/gu, "").trim().slice(0, 60) || "conversation";
  const change = mayChange.value;
  return [
    change ? { label: "Rename", icon: "edit", act: onRename } : null,
    change ? { label: "Retry the last message", icon: "refresh", act: () => onCommand("/retry") } : null,
    change ? { label: "Undo the last turn", icon: "undo", act: () => onCommand("/undo") } : null,
    change ? { label: "Branch", icon: "branch", act: () => branch(id) } : null,
    { label: "Checkpoints", icon: "clock", act: onCheckpoints },
    { label: "Copy the link", icon: "copy", act: () => copy(location.href) },
    { label: "Export as Markdown", icon: "download", act: () => download(`sessions/${id}/export/markdown`, `${name}.md`) },
    { label: "Export as JSON", icon: "download", act: () => download(`sessions/${id}/export`, `${name}.json`) },
    { label: "Export as HTML", icon: "download", act: () => download(`sessions/${id}/export/html`, `${name}.html`) },
    change ? { label: "Delete", icon: "trash", danger: true, act: () => remove(conversation) } : null,
  ];
}

/** @param {string} id @param {number} [message] */
export async function branch(id, message) {
  const { post } = await import("../api.js");
  const made = await post(`sessions/${id}/fork`, message ? { message } : {});
  toast("Created a branch. The original is unchanged.");
  go(`c/${made.id}`);
}

/** @param {string} text */
async function copy(text) {
  await navigator.clipboard.writeText(text);
  toast("Copied.");
}

/** @param {Conversation} conversation */
async function remove(conversation) {
  const title = conversation.session.value?.title || "this conversation";
  const sure = await confirm({ title: "Delete the conversation?", text: `“${title}” and all its messages are deleted. This cannot be undone.`, action: "Delete", danger: true });
  if (!sure) return;
  await del(`sessions/${conversation.id}`);
  removeConversation(conversation.id);
  go("new", { replace: true });
}

/** @param {{label: string, entries: Entry[]}} props */
export function Menu({ label, entries: all }) {
  const [open, setOpen] = useState(false);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const shown = all.flatMap((each) => (each ? [each] : []));
  useEffect(() => {
    if (!open) return undefined;
    /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector('[role="menuitem"]'))?.focus();
    /** @param {Event} event */
    const leave = (event) => {
      if (!box.current?.contains(/** @type {Node} */ (event.target))) setOpen(false);
    };
    addEventListener("pointerdown", leave);
    return () => removeEventListener("pointerdown", leave);
  }, [open]);
  const close = () => {
    setOpen(false);
    box.current?.querySelector("button")?.focus();
  };
  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    if (!open) return;
    const items = [.../** @type {NodeListOf<HTMLElement>} */ (box.current?.querySelectorAll('[role="menuitem"]'))];
    const at = items.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const next = { ArrowDown: at + 1, ArrowUp: at - 1 + items.length, Home: 0, End: items.length - 1 }[event.key];
    if (next !== undefined) items[next % items.length]?.focus();
    else if (event.key === "Escape") close();
    else if (event.key === "Tab") setOpen(false);
    else return;
    if (event.key !== "Tab") event.preventDefault();
    event.stopPropagation();
  };
  return html`<div ref=${box} class="menu" onKeyDown=${onKey}>
    <${IconButton} icon="more" label=${label} aria-haspopup="menu" aria-expanded=${open ? "true" : "false"} onClick=${() => setOpen(!open)} />
    ${open && html`<div class="menu-list" role="menu" aria-label=${label}>${shown.map((each) => html`<button key=${each.label} role="menuitem" tabindex="-1"
      class=${each.danger ? "danger" : ""} onClick=${() => { close(); attempt(each.act); }}><${Icon} name=${each.icon} size=${16} /> ${each.label}</button>`)}</div>`}
  </div>`;
}

/** @type {Promise<{current: string, models: {name: string}[]}> | null} */
let models = null;

/** @returns {Promise<{current: string, models: {name: string}[]}>} */
export function listModels() {
  models ??= get("model-choices").catch(() => {
    models = null;
    return { current: "", models: [] };
  });
  return models;
}
