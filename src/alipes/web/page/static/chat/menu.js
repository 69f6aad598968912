// The menu of a conversation: rename, retry, undo, branch, checkpoints, export, delete.
import { html, useEffect, useRef } from "../vendor/preact.js";
import { del, download } from "../api.js";
import { go } from "../router.js";
import { mayChange, removeConversation } from "../state.js";
import { Icon, attempt, confirm, toast } from "../ui.js";
import { branch } from "./conversation.js";

/** @typedef {import("./conversation.js").Conversation} Conversation */
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

/**
 * @param {{conversation: Conversation, box: {current: HTMLElement | null}, onClose: () => void, onCheckpoints: () => void,
 *   onCommand: (text: string) => Promise<unknown>, onRename: () => void}} props
 */
export default function Menu({ conversation, box, onClose, ...acts }) {
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const shown = entries(conversation, acts).flatMap((each) => (each ? [each] : []));
  const items = () => [.../** @type {NodeListOf<HTMLElement>} */ (list.current?.querySelectorAll('[role="menuitem"]'))];
  const close = () => {
    onClose();
    box.current?.querySelector("button")?.focus();
  };
  useEffect(() => {
    items()[0]?.focus();
    /** @param {Event} event */
    const leave = (event) => {
      if (!box.current?.contains(/** @type {Node} */ (event.target))) onClose();
    };
    addEventListener("pointerdown", leave);
    return () => removeEventListener("pointerdown", leave);
  }, []);
  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    const all = items();
    const at = all.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const next = { ArrowDown: at + 1, ArrowUp: at - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
    if (next !== undefined) all[next % all.length]?.focus();
    else if (event.key === "Escape") close();
    else if (event.key === "Tab") onClose();
    else return;
    if (event.key !== "Tab") event.preventDefault();
    event.stopPropagation();
  };
  return html`<div ref=${list} class="menu-list" role="menu" aria-label="Conversation menu" onKeyDown=${onKey}>${shown.map((each) => html`
    <button key=${each.label} role="menuitem" tabindex="-1" class=${each.danger ? "danger" : ""}
      onClick=${() => { close(); attempt(each.act); }}><${Icon} name=${each.icon} size=${16} /> ${each.label}</button>`)}</div>`;
}
