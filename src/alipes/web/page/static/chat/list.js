// The sidebar: links to the screens and the conversations of all surfaces. Only the visible rows exist.
import { html, signal, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { go, href, route } from "../router.js";
import { caller, conversations, filter, listState, loadMoreConversations, mayChange, reloadConversations, waiting } from "../state.js";
import { Icon, IconButton, clock, formatAge } from "../ui.js";
import { draftIds } from "./drafts.js";

/** Whether the sidebar is shown over the page, on a phone. */
export const drawer = signal(false);
route.subscribe(() => (drawer.value = false));

/** @type {Record<string, string>} */
const ICONS = {
  inbox: "inbox", search: "search", usage: "chart", schedules: "clock", skills: "book", memory: "note", mcp: "server",
  plugins: "plug", people: "people", settings: "settings", log: "list", doctor: "doctor", cluster: "server", browsers: "device",
};
/** @type {Record<string, string>} */
const STATUS = { running: "running", waiting: "waiting for an answer", queued: "queued", held: "held back" };
const ROW_REM = 3.25;

/** @param {{screens: Record<string, string>}} props */
export function Sidebar({ screens }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (drawer.value) box.current?.querySelector("input")?.focus();
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
    <details class="manage" open=${managed.includes(route.value.name)}><summary>Manage</summary>
      ${managed.map((name) => html`<${SideLink} key=${name} name=${name} title=${screens[name]} />`)}
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
    autocomplete="off" dir="auto" onInput=${change} onKeyDown=${focusList} /></div>`;
}

/** @param {KeyboardEvent} event */
function focusList(event) {
  if (event.key !== "ArrowDown") return;
  event.preventDefault();
  /** @type {HTMLElement | null} */ (document.querySelector('.conversations a[tabindex="0"]'))?.focus();
}

function List() {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [view, setView] = useState({ top: 0, height: 800 });
  const [active, setActive] = useState("");
  const focusNext = useRef(false);
  const row = ROW_REM * parseFloat(getComputedStyle(document.documentElement).fontSize);
  const all = conversations.value;
  const open = route.value.name === "c" ? route.value.params[0] ?? "" : "";
  const measure = () => {
    const now = box.current;
    if (now) setView({ top: now.scrollTop, height: now.clientHeight });
  };
  useLayoutEffect(() => {
    const now = /** @type {HTMLElement} */ (box.current);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(now);
    return () => observer.disconnect();
  }, []);
  const from = Math.max(0, Math.floor(view.top / row) - 8);
  const to = Math.min(all.length, Math.ceil((view.top + view.height) / row) + 8);
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
    const top = all.indexOf(next) * row;
    if (top < box.current.scrollTop) box.current.scrollTop = top;
    if (top + row > box.current.scrollTop + box.current.clientHeight) box.current.scrollTop = top + row - box.current.clientHeight;
    focusNext.current = true;
    setActive(next.id);
    measure();
  };
  return html`<div ref=${box} class="conversations" onScroll=${measure} onKeyDown=${move}>
    <ul style=${{ height: `${all.length * row}px` }}>
      ${all.slice(from, to).map((each, index) => html`<${Row} key=${each.id} session=${each} top=${(from + index) * row}
        open=${each.id === open} reachable=${each.id === known} place=${from + index + 1} count=${all.length} />`)}
    </ul>
    ${listState.value === "all" && !all.length && html`<p class="list-note">${filter.value ? "No conversation matches." : "No conversations yet."}</p>`}
    ${listState.value === "failed" && html`<p class="list-note">The conversations could not be loaded.
      <button class="link" onClick=${reloadConversations}>Try again</button></p>`}
  </div>`;
}

/** @param {{session: import("../state.js").Session, top: number, open: boolean, reachable: boolean, place: number, count: number}} props */
function Row({ session, top, open, reachable, place, count }) {
  const status = STATUS[session.status ?? ""];
  const title = session.title || session.preview || session.name || "Untitled";
  return html`<li style=${{ transform: `translateY(${top}px)` }} aria-posinset=${place} aria-setsize=${count}>
    <a class="conversation" href=${href("c", session.id)} aria-current=${open ? "page" : null} tabindex=${reachable ? 0 : -1}>
      <span class=${`dot ${session.status ?? ""}`} title=${status} aria-hidden="true"></span>
      <span class="conversation-title"><bdi>${title.slice(0, 200)}</bdi></span>
      ${status && html`<span class="hidden">, ${status}</span>`}
      <span class="conversation-note">
        ${draftIds.value.has(session.id) && html`<span class="draft">Draft · </span>`}<bdi>${(session.origin ?? "").slice(0, 80)}</bdi>
      </span>
      <time class="conversation-time">${session.updated ? formatAge(session.updated, clock.value).replace(" ago", "") : ""}</time>
    </a></li>`;
}
