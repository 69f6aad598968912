// The sidebar: links to the screens, and conversations by day with their menus. Only the visible rows exist.
import { html, signal, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { go, href, route } from "../router.js";
import { caller, conversations, filter, folders, listState, loadMoreConversations, mayChange, reloadConversations, setView, view, waiting } from "../state.js";
import { Button, Icon, IconButton, clock, formatAge } from "../ui.js";
import { draftIds } from "./drafts.js";
import { NameDialog, askFolder, askTitle, askToDelete, setOrder, titleOf } from "./list_acts.js";
import { MenuList } from "./menu_list.js";

/** Whether the sidebar is shown over the page, on a phone. */
export const drawer = signal(false);
route.subscribe(() => (drawer.value = false));

/** @type {Record<string, string>} */
const ICONS = {
  inbox: "inbox", search: "search", usage: "chart", schedules: "clock", skills: "book", memory: "note", mcp: "server", agents: "branch",
  plugins: "plug", people: "people", settings: "settings", log: "list", doctor: "doctor", cluster: "server", browsers: "device",
};
/** @type {Record<string, string>} */
const STATUS = { running: "running", waiting: "waiting for an answer", queued: "queued", held: "held back" };
const ROW_REM = 3.25;
const HEAD_REM = 2;
/** @typedef {import("../state.js").Session} Session */
/** Ids of the conversations that are selected; null: none can be selected now. */
const selected = signal(/** @type {Set<string> | null} */ (null));
/** The conversation whose menu is open, and where. */
const menu = signal(/** @type {{session: Session, place: {x: number, y: number}, button: HTMLElement} | null} */ (null));

/** @param {{screens: Record<string, string>}} props */
export function Sidebar({ screens }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (drawer.value) /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector(".brand .only-phone"))?.focus(); // a text field would bring up the keyboard
  }, [drawer.value]);
  const managed = Object.keys(screens).filter((name) => name !== "inbox" && name !== "search" && (name !== "cluster" || caller.value?.clustered));
  return html`<nav ref=${box} class=${`sidebar${drawer.value ? " open" : ""}`} aria-label="Conversations and screens"
    onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Escape" && (drawer.value = false)}
    onClick=${(/** @type {MouseEvent} */ event) => /** @type {Element} */ (event.target).closest("a") && (drawer.value = false)}>
    <div class="brand"><span>alipes</span><span class="fill"></span>
      ${mayChange.value && html`<${IconButton} icon="edit" label="New conversation" onClick=${() => go("new")} />`}
      <${IconButton} icon="close" label="Close the menu" class="only-phone" onClick=${() => (drawer.value = false)} />
    </div>
    <div class="side-nav">
      <${SideLink} name="inbox" title=${screens.inbox} count=${waiting.value} />
      <${SideLink} name="search" title=${screens.search} />
    </div>
    <${Filter} />
    <${List} />
    ${selected.value && html`<${Selection} ids=${selected.value} />`}
    ${menu.value && html`<${RowMenu} ...${menu.value} />`}
    <${NameDialog} />
    <details class="manage" open=${managed.includes(route.value.name)}><summary>Manage</summary>
      ${managed.map((name) => html`<${SideLink} key=${name} name=${name} title=${screens[name]} />`)}
      <button type="button" class="side-link" onClick=${() => import("../shortcuts.js").then(({ showKeys }) => showKeys())}><${Icon} name="keyboard" /><span>Appearance and keys</span><kbd>?</kbd></button>
    </details>
  </nav>`;
}

/** @param {{name: string, title: string, count?: number}} props */
function SideLink({ name, title, count }) {
  return html`<a class="side-link" href=${href(name)} aria-current=${route.value.name === name ? "page" : null}>
    <${Icon} name=${ICONS[name]} /><span>${title}</span>
    ${count ? html`<span class="count" aria-label=${`${count} open`}>${count}</span>` : null}</a>`;
}

function Filter() {
  const timer = useRef(0);
  /** @param {Event} event */
  const change = (event) => {
    filter.value = /** @type {HTMLInputElement} */ (event.currentTarget).value.trim();
    clearTimeout(timer.current);
    timer.current = setTimeout(reloadConversations, 200);
  };
  return html`<div class="side-search"><input type="search" placeholder="Find a conversation" aria-label="Find a conversation"
    autocomplete="off" dir="auto" onInput=${change} onKeyDown=${focusList} />
    <select class="quiet-select" aria-label="Which conversations" value=${view.value} onChange=${(/** @type {Event} */ event) => setView(/** @type {HTMLSelectElement} */ (event.currentTarget).value)}>
      ${views().map(([value, label]) => html`<option key=${value} value=${value} selected=${value === view.value}>${label}</option>`)}</select></div>`;
}

/** @returns {[string, string][]} */
function views() {
  const names = folders.value.map((each) => each.name);
  if (view.value.startsWith("folder:") && !names.includes(view.value.slice(7))) names.push(view.value.slice(7));
  return [["person", "Conversations"], ...names.map((name) => /** @type {[string, string]} */ ([`folder:${name}`, `Folder: ${name}`])),
    ["archive", "Archive"], ["ask", "From alipes ask"], ["key", "From API keys"]];
}

/** What is done with the selected conversations. @param {{ids: Set<string>}} props */
function Selection({ ids }) {
  const chosen = conversations.value.filter((each) => ids.has(each.id));
  const archived = view.value === "archive";
  const end = () => (selected.value = null);
  return html`<div class="selection" role="toolbar" aria-label="Selected conversations"><span role="status">${chosen.length} selected</span>
    <${IconButton} small icon="archive" label=${archived ? "Take out of the archive" : "Archive"} disabled=${!chosen.length} onClick=${() => setOrder(chosen, { archived: !archived }).then(end)} />
    <${IconButton} small icon="folder" label="Move to a folder" disabled=${!chosen.length} onClick=${() => askFolder(chosen, (order) => setOrder(chosen, order).then(end))} />
    <${IconButton} small icon="trash" label="Delete" disabled=${!chosen.length} onClick=${async () => (await askToDelete(chosen)) && end()} />
    <${Button} small kind="quiet" onClick=${end}>Done<//></div>`;
}

/** @param {NonNullable<typeof menu.value>} props */
function RowMenu({ session, place, button }) {
  const box = { current: button };
  const open = route.value.params[0] === session.id;
  return html`<${MenuList} label=${`Menu of ${titleOf(session)}`} box=${box} place=${place} onClose=${() => (menu.value = null)} entries=${[
    { label: session.pinned ? "Unpin" : "Pin", icon: "pin", act: () => setOrder([session], { pinned: !session.pinned }) },
    { label: "Rename", icon: "edit", act: () => askTitle(session) },
    { label: "Move to a folder", icon: "folder", act: () => askFolder([session]) },
    { label: session.archived ? "Take out of the archive" : "Archive", icon: "archive", act: () => setOrder([session], { archived: !session.archived }) },
    { label: "Select several", icon: "check", act: () => (selected.value = new Set([session.id])) },
    { label: "Delete", icon: "trash", danger: true, act: async () => { if ((await askToDelete([session])) && open) go("new", { replace: true }); } },
  ]} />`;
}

/** The heading of the time when a conversation was last used. @param {Session} session @param {Date} now */
function groupOf(session, now) {
  const grouped = view.value === "person" && !filter.value;
  if (grouped && session.pinned) return "Pinned";
  const day = new Date((session.updated ?? 0) * 1000);
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const days = Math.ceil((midnight - day.getTime()) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days <= 7) return "Previous 7 days";
  return day.toLocaleDateString(undefined, { month: "long", year: day.getFullYear() === now.getFullYear() ? undefined : "numeric" });
}

/**
 * The lines of the list with their places: pinned ones first, then by day, each day with its heading.
 * @param {Session[]} all @param {number} rem @returns {{session?: Session, head?: string, top: number, height: number}[]}
 */
function makeLines(all, rem) {
  const lines = [];
  const now = new Date(clock.value * 1000);
  let top = 0;
  let before = "";
  for (const session of all) {
    const head = groupOf(session, now);
    if (head !== before) {
      lines.push({ head, top, height: HEAD_REM * rem });
      top += HEAD_REM * rem;
      before = head;
    }
    lines.push({ session, top, height: ROW_REM * rem });
    top += ROW_REM * rem;
  }
  return lines;
}

/** @param {KeyboardEvent} event */
function focusList(event) {
  if (event.key !== "ArrowDown") return;
  event.preventDefault();
  /** @type {HTMLElement | null} */ (document.querySelector('.conversations a[tabindex="0"]'))?.focus();
}

function List() {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [seen, setSeen] = useState({ top: 0, height: 800 });
  const [active, setActive] = useState("");
  const focusNext = useRef(false);
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const own = view.value === "person" && !filter.value;
  const all = own ? [...conversations.value.filter((each) => each.pinned), ...conversations.value.filter((each) => !each.pinned)] : conversations.value;
  const lines = makeLines(all, rem);
  const open = route.value.name === "c" ? route.value.params[0] ?? "" : "";
  const measure = () => {
    const now = box.current;
    if (now) setSeen({ top: now.scrollTop, height: now.clientHeight });
  };
  useLayoutEffect(() => {
    const now = /** @type {HTMLElement} */ (box.current);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(now);
    return () => observer.disconnect();
  }, []);
  const near = lines.filter((each) => each.top + each.height > seen.top - 400 && each.top < seen.top + seen.height + 400);
  const last = near.at(-1);
  const to = last ? all.findIndex((each) => each === last.session) : 0;
  useEffect(() => {
    if (to + 20 >= all.length) loadMoreConversations();
  }, [to, all.length, listState.value]);
  useEffect(() => {
    if (!focusNext.current) return;
    focusNext.current = false;
    /** @type {HTMLElement | null} */ (box.current?.querySelector('a[tabindex="0"]'))?.focus({ preventScroll: true });
  });
  const known = all.some((each) => each.id === active) ? active : all.some((each) => each.id === open) ? open : all[0]?.id;
  /** @param {KeyboardEvent} event */
  const move = (event) => {
    const at = all.findIndex((each) => each.id === known);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -at, End: all.length - 1 - at };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    const next = step === undefined ? undefined : all[Math.max(0, Math.min(all.length - 1, at + step))];
    if (!next || !box.current) return;
    event.preventDefault();
    const { top, height: row } = /** @type {{top: number, height: number}} */ (lines.find((each) => each.session === next));
    if (top < box.current.scrollTop) box.current.scrollTop = top - HEAD_REM * rem;
    if (top + row > box.current.scrollTop + box.current.clientHeight) box.current.scrollTop = top + row - box.current.clientHeight;
    focusNext.current = true;
    setActive(next.id);
    measure();
  };
  return html`<div ref=${box} class="conversations" onScroll=${measure} onKeyDown=${move}>
    <ul style=${{ height: `${lines.length && (lines.at(-1)?.top ?? 0) + ROW_REM * rem}px` }}>
      ${near.map(({ session, head, top }) => (session
        ? html`<${Row} key=${session.id} session=${session} top=${top} open=${session.id === open} reachable=${session.id === known}
          place=${all.indexOf(session) + 1} count=${all.length} />`
        : html`<li key=${`head ${head}`} class="list-head" style=${{ transform: `translateY(${top}px)` }}>${head}</li>`))}
    </ul>
    ${listState.value === "all" && !all.length && html`<p class="list-note">${filter.value ? "No conversation matches." : "No conversations yet."}</p>`}
    ${listState.value === "failed" && html`<p class="list-note">The conversations could not be loaded.
      <button class="link" onClick=${reloadConversations}>Try again</button></p>`}
  </div>`;
}

/** @param {{session: import("../state.js").Session, top: number, open: boolean, reachable: boolean, place: number, count: number}} props */
function Row({ session, top, open, reachable, place, count }) {
  const status = STATUS[session.status ?? ""];
  const title = titleOf(session);
  const chosen = selected.value;
  const isChosen = Boolean(chosen?.has(session.id));
  const choose = () => {
    const next = new Set(chosen);
    if (!next.delete(session.id)) next.add(session.id);
    selected.value = next;
  };
  /** @param {MouseEvent} event */
  const click = (event) => {
    if (!mayChange.value || !(chosen || event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    event.stopPropagation();
    choose();
  };
  /** @param {MouseEvent} event */
  const openMenu = (event) => {
    if (!mayChange.value) return;
    event.preventDefault();
    event.stopPropagation();
    const button = /** @type {HTMLElement} */ (event.currentTarget);
    const { left, bottom } = button.getBoundingClientRect();
    menu.value = { session, button, place: event.type === "contextmenu" && event.clientX ? { x: event.clientX, y: event.clientY } : { x: left, y: bottom } };
  };
  return html`<li style=${{ transform: `translateY(${top}px)` }} aria-posinset=${place} aria-setsize=${count} class=${isChosen ? "chosen" : null}>
    <a class="conversation" href=${href("c", session.id)} aria-current=${open ? "page" : null} tabindex=${reachable ? 0 : -1} onClick=${click} onContextMenu=${openMenu}>
      ${chosen ? html`<input type="checkbox" class="choose" tabindex="-1" aria-label=${`Select ${title}`} checked=${isChosen} />`
        : html`<span class=${`dot ${session.status ?? ""}`} title=${status} aria-hidden="true"></span>`}
      <span class="conversation-title">${session.parent && html`<${Icon} name="branch" size=${14} />`}<bdi>${title}</bdi></span>
      ${status && html`<span class="hidden">, ${status}</span>`}
      <span class="conversation-note">
        ${draftIds.value.has(session.id) && html`<span class="draft">Draft · </span>`}<bdi>${[session.parent ? "branch" : "", (session.origin ?? "").slice(0, 80), session.folder].filter(Boolean).join(" · ")}</bdi>
      </span>
      <time class="conversation-time">${session.updated ? formatAge(session.updated, clock.value).replace(" ago", "") : ""}</time>
    </a>${mayChange.value && !chosen && html`<button type="button" class="row-menu" aria-label=${`Menu of ${title}`} aria-haspopup="menu" tabindex=${reachable ? 0 : -1} onClick=${openMenu}><${Icon} name="more" size=${16} /></button>`}</li>`;
}
