// The head of a conversation: its title, where it comes from, and what can be done with it.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { go, href, pageTitle } from "../router.js";
import { mayChange } from "../state.js";
import { Icon, IconButton, attempt } from "../ui.js";
import { Lazy } from "./lazy.js";
import { drawer } from "./list.js";
import { titleOf } from "./list_acts.js";

/** @typedef {import("./conversation.js").Conversation} Conversation */

/** @param {{conversation: Conversation | null, onCheckpoints: () => void, onShare: () => void}} props */
export function Header({ conversation, onCheckpoints, onShare }) {
  const session = conversation?.session.value;
  const [editing, setEditing] = useState(false);
  const [open, setOpen] = useState(false);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const title = conversation?.problem.value ? "Conversation not found" : session ? titleOf(session) : conversation ? "" : "New conversation";
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
      ${session?.origin && html`<p class="muted small"><bdi>${session.origin}</bdi><${Branches} session=${session} />${session.workdir ? html` · <bdi title=${session.workdir}>${session.workdir.split("/").pop()}</bdi>` : ""}</p>`}
    </div>
    ${conversation && session && html`<div class="menu" ref=${box}>
      <${IconButton} icon="more" label="Conversation menu" aria-haspopup="menu" aria-expanded=${open ? "true" : "false"} onClick=${() => setOpen(!open)} />
      ${open && html`<${Lazy} path="./menu.js" conversation=${conversation} box=${box} onClose=${() => setOpen(false)} onCheckpoints=${onCheckpoints}
        onShare=${onShare} onRename=${() => setEditing(true)} />`}</div>`}
  </header>`;
}

/** The conversation that this one branched off, and the branches of this one. @param {{session: import("../state.js").Session}} props */
function Branches({ session: { id, parent } }) {
  const [known, setKnown] = useState(/** @type {{of: string, branches: import("../state.js").Session[]}} */ ({ of: "", branches: [] }));
  const [place, setPlace] = useState(/** @type {{x: number, y: number} | null} */ (null));
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const toggle = () => {
    const { left = 0, bottom = 0 } = box.current?.getBoundingClientRect() ?? {};
    setPlace(place ? null : { x: left, y: bottom });
  };
  useEffect(() => {
    const above = parent ? get(`sessions/${parent}`).then(titleOf, () => "") : "";
    Promise.all([above, get("sessions", { parent: id, limit: 50 })]).then(([of, { sessions }]) => setKnown({ of, branches: sessions }), () => {});
  }, [id, parent]);
  const { of, branches } = known;
  return html`${parent ? html` · <${Icon} name="branch" size=${14} /> branch of <a href=${href("c", parent)}><bdi>${of || "another conversation"}</bdi></a>` : ""}
    ${branches.length > 0 && html` · <span ref=${box}><button type="button" class="link" aria-haspopup="menu" aria-expanded=${place ? "true" : "false"} onClick=${toggle}>
      ${branches.length === 1 ? "1 branch" : `${branches.length} branches`}</button>
      ${place && html`<${Lazy} path="./menu_list.js" label="Branches" box=${box} place=${place} onClose=${() => setPlace(null)}
        entries=${branches.map((each) => ({ label: titleOf(each), icon: "branch", act: () => go(`c/${each.id}`) }))} />`}</span>`}`;
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
