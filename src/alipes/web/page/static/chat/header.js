// The head of a conversation: its title, where it comes from, and what can be done with it.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { href, pageTitle } from "../router.js";
import { mayChange } from "../state.js";
import { IconButton, attempt } from "../ui.js";
import { Lazy } from "./lazy.js";
import { drawer } from "./list.js";

/** @typedef {import("./conversation.js").Conversation} Conversation */

/** @param {{conversation: Conversation | null, onCheckpoints: () => void, onShare: () => void}} props */
export function Header({ conversation, onCheckpoints, onShare }) {
  const session = conversation?.session.value;
  const [editing, setEditing] = useState(false);
  const [open, setOpen] = useState(false);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const title = session?.title || session?.preview || session?.name || (conversation ? "" : "New conversation");
  useEffect(() => {
    pageTitle.value = title || "Conversation";
  }, [title]);
  /** @param {string} name */
  const rename = async (name) => {
    setEditing(false);
    if (conversation && name.trim() !== (session?.title ?? "")) await attempt(() => conversation.change({ title: name.trim() }));
  };
  return html`<header class="chat-head">
    <${IconButton} icon="menu" label="Open the menu" class="only-phone" onClick=${() => (drawer.value = true)} />
    <div class="chat-title">
      ${editing
        ? html`<${TitleInput} title=${session?.title ?? title} done=${rename} cancel=${() => setEditing(false)} />`
        : html`<h1 title=${title} onDblClick=${() => mayChange.value && session && setEditing(true)}><bdi>${title}</bdi></h1>`}
      ${session?.origin && html`<p class="muted small"><bdi>${session.origin}</bdi>${session.parent ? html` · <a href=${href("c", session.parent)}>branch of another conversation</a>` : ""}${session.workdir ? html` · <bdi title=${session.workdir}>${session.workdir.split("/").pop()}</bdi>` : ""}</p>`}
    </div>
    ${conversation && session && html`<div class="menu" ref=${box}>
      <${IconButton} icon="more" label="Conversation menu" aria-haspopup="menu" aria-expanded=${open ? "true" : "false"} onClick=${() => setOpen(!open)} />
      ${open && html`<${Lazy} path="./menu.js" conversation=${conversation} box=${box} onClose=${() => setOpen(false)} onCheckpoints=${onCheckpoints}
        onShare=${onShare} onRename=${() => setEditing(true)} />`}</div>`}
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
