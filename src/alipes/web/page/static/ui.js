// Controls of the whole page: buttons, icons, dialogs, times, code and diffs.
import { html, render, signal, useEffect, useRef, useState } from "./vendor/preact.js";
import { load, save } from "./storage.js";

/** @typedef {import("./vendor/preact.js").Child} Child */

// ---- texts and figures ----

/** Characters that change how their neighbours are read: controls, and marks of writing direction. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
const CLIP = 6000;

/** `text` with its invisible characters written out, so that a command reads as it is run. @param {string} text */
export function showHidden(text) {
  return text.replace(HIDDEN, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** @param {number | null | undefined} value */
export const formatCount = (value) => (value ?? 0).toLocaleString();

/** A count in four characters: 950, 1.2k, 34k, 5.6M. @param {number | null | undefined} value */
export function formatShort(value) {
  let size = value ?? 0;
  for (const unit of ["", "k", "M", "G"]) {
    if (size < 999.5 || unit === "G") return `${unit && size < 9.95 ? size.toFixed(1) : Math.round(size)}${unit}`;
    size /= 1000;
  }
  return "";
}

/** @param {number | null | undefined} bytes */
export const formatSize = (bytes) => ((bytes ?? 0) < 1000 ? `${bytes ?? 0} bytes` : `${formatShort(bytes).replace("k", " k").replace("M", " M").replace("G", " G")}B`);

/** Dollars: two digits after the point, three below one dollar, two that count below a tenth of a cent. @param {number | null | undefined} value */
export function formatMoney(value) {
  const amount = value ?? 0;
  return `$${amount === 0 || amount >= 1 ? amount.toFixed(2) : amount >= 0.001 ? amount.toFixed(3) : amount.toLocaleString("en", { maximumSignificantDigits: 2 })}`;
}

/** @param {number | null | undefined} seconds */
export function formatDuration(seconds) {
  const time = Math.max(0, seconds ?? 0);
  if (time < 1) return `${Math.round(time * 1000)} ms`;
  if (time < 10) return `${time.toFixed(1)} s`;
  if (time < 60) return `${Math.round(time)} s`;
  if (time < 3600) return `${Math.floor(time / 60)} min ${Math.round(time % 60)} s`;
  if (time < 86400) return `${Math.floor(time / 3600)} h ${Math.round((time % 3600) / 60)} min`;
  return `${Math.floor(time / 86400)} d ${Math.round((time % 86400) / 3600)} h`;
}

/** @type {Map<string, Intl.DateTimeFormat>} */
const formats = new Map();
/** @type {Map<string, Promise<void>>} */
const styles = new Map();

/** Load a style sheet once. @param {string} path Below this folder. @returns {Promise<void>} When it is used. */
export function loadStyle(path) {
  const loading = styles.get(path) ?? new Promise((resolve) => {
    const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href: new URL(path, import.meta.url).href });
    link.onload = link.onerror = () => resolve(undefined);
    document.head.append(link);
  });
  styles.set(path, loading);
  return loading;
}

/** @param {string} name @param {Intl.DateTimeFormatOptions} options */
function formatOf(name, options) {
  let format = formats.get(name);
  if (!format) formats.set(name, (format = new Intl.DateTimeFormat(undefined, options)));
  return format;
}

/** Date and time in words. @param {number} seconds since the epoch @param {string} [zone] */
export function formatTime(seconds, zone) {
  const options = /** @type {Intl.DateTimeFormatOptions} */ ({
    weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", timeZone: zone,
  });
  try {
    return formatOf(`time ${zone ?? ""}`, options).format(seconds * 1000);
  } catch {
    return formatOf("time", { ...options, timeZone: undefined }).format(seconds * 1000);
  }
}

/** How long ago or until then: "now", "5 min ago", "in 3 h", or the date. @param {number} seconds @param {number} now */
export function formatAge(seconds, now = Date.now() / 1000) {
  const age = Math.abs(now - seconds);
  if (age < 45) return "now";
  const words = age < 3570 ? `${Math.round(age / 60)} min` : age < 86400 ? `${Math.round(age / 3600)} h` : age < 7 * 86400 ? `${Math.round(age / 86400)} d` : "";
  if (words) return seconds < now ? `${words} ago` : `in ${words}`;
  const year = new Date(seconds * 1000).getFullYear() === new Date(now * 1000).getFullYear();
  return formatOf(`day ${year}`, { day: "numeric", month: "short", year: year ? undefined : "numeric" }).format(seconds * 1000);
}

/** Half-minute clock of all ages on the page; it stops while the page is hidden. */
export const clock = signal(Date.now() / 1000);
setInterval(() => { if (!document.hidden) clock.value = Date.now() / 1000; }, 30000);

/** A time as an age, with the date as its title; or the date itself with `full`. @param {{value?: number | null, full?: boolean, zone?: string}} props */
export function Time({ value, full, zone }) {
  if (!value) return html`<span class="muted">never</span>`;
  const date = formatTime(value, zone);
  return html`<time dateTime=${new Date(value * 1000).toISOString()} title=${date}>${full ? date : formatAge(value, clock.value)}</time>`;
}

/** A person's text in its own direction. @param {{value?: string | null}} props */
export const Text = ({ value }) => html`<bdi dir="auto">${value ?? ""}</bdi>`;

// ---- icons ----

/** Paths in a square of 20, drawn with a line of 1.5. @type {Record<string, string>} */
const ICONS = {
  menu: "M3 6h14M3 10h14M3 14h14", close: "M5 5l10 10M15 5L5 15", plus: "M10 4v12M4 10h12", check: "M4 10.5l4 4 8-9",
  search: "M9 3.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM13 13l4 4", more: "M4.5 10h.01M10 10h.01M15.5 10h.01",
  right: "M8 5l5 5-5 5", down: "M5 8l5 5 5-5", left: "M12 5l-5 5 5 5", up: "M5 12l5-5 5 5",
  copy: "M7 7h9v9H7zM13 7V4H4v9h3", stop: "M6 6h8v8H6z", send: "M10 16V4M5 9l5-5 5 5", attach: "M14 9l-5 5a2.5 2.5 0 0 1-4-4l6-6a3.5 3.5 0 0 1 5 5l-6.5 6.5",
  chat: "M3.5 4.5h13v9h-7l-3.5 3v-3h-2.5z", inbox: "M3.5 11l2-7h9l2 7v5h-13zM3.5 11h4a2.5 2.5 0 0 0 5 0h4", chart: "M4 16V9M8 16V4M12 16v-5M16 16V7",
  clock: "M10 3.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM10 6.5V10l2.5 2", book: "M4 4h5a1 1 0 0 1 1 1v11a1 1 0 0 0-1-1H4zM16 4h-5a1 1 0 0 0-1 1v11a1 1 0 0 1 1-1h5z",
  note: "M5 3.5h7l3 3v10H5zM7.5 9h5M7.5 12h5", server: "M4 4h12v5H4zM4 11h12v5H4zM7 6.5h.01M7 13.5h.01", plug: "M7 3v4M13 3v4M5 7h10v2a5 5 0 0 1-10 0zM10 14v3.5",
  people: "M7.5 4a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM3 16c0-3 2-4.5 4.5-4.5S12 13 12 16M13 4.5a2.5 2.5 0 0 1 0 4.5M14.5 11.7c1.6.6 2.5 2 2.5 4.3",
  settings: "M3 6h8M15 6h2M3 14h2M9 14h8M13 4v4M7 12v4", list: "M4 5h12M4 8.3h12M4 11.6h8M4 15h10", doctor: "M3 10h3.5l2-5 3 10 2-5H17",
  device: "M3.5 4.5h13v9h-13zM7 16.5h6M10 13.5v3", download: "M10 4v8M6 9l4 4 4-4M4 16h12", trash: "M4 6h12M8 6V4h4v2M6 6l.7 10h6.6L14 6",
  edit: "M12 5l3 3-8.5 8.5H3.5v-3zM10.5 6.5l3 3", undo: "M7 5L4 8l3 3M4 8h7a4 4 0 0 1 0 8H8", branch: "M6 4v12M6 10c5 0 8 0 8-5M14 5h.01M6 4h.01M6 16h.01",
  refresh: "M15.5 8A6 6 0 1 0 16 11M16 4v4h-4", play: "M7 4.5v11l8-5.5z", pause: "M7 5v10M13 5v10", warn: "M10 3.5l7 12.5H3zM10 8v4M10 14.2h.01",
  external: "M8 4H4v12h12v-4M11 4h5v5M16 4l-7 7", lock: "M5 9h10v7.5H5zM7 9V6.5a3 3 0 0 1 6 0V9", sun: "M10 7a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM10 3v1M10 16v1M3 10h1M16 10h1M5 5l.7.7M14.3 14.3l.7.7M5 15l.7-.7M14.3 5.7L15 5",
  columns: "M3 4h14v12H3zM10 4v12", link: "M8.5 11.5l3-3M9 6l1.5-1.5a3 3 0 0 1 5 5L14 11M11 14l-1.5 1.5a3 3 0 0 1-5-5L6 9", info: "M10 3.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM10 9.5v4M10 6.7h.01",
  pin: "M7.5 3.5h5l-.7 5 2.7 3h-9l2.7-3zM10 11.5v5", folder: "M3 5h5l1.5 2H17v9H3z", archive: "M3 4h14v4H3zM4.5 8v8h11V8M8 11h4",
  bell: "M5 14V9a5 5 0 0 1 10 0v5l1 1H4zM8.5 17h3", keyboard: "M2.5 5.5h15v9h-15zM5 8.5h.01M8 8.5h.01M11 8.5h.01M14 8.5h.01M6 11.5h8",
  file: "M5 3.5h6l4 4v9H5zM11 3.5v4h4", tool: "M4 6l4 4-4 4M10 15h6",
};

/** The same icon as a node, for messages. @param {string} name */
export function makeIcon(name) {
  const box = document.createElement("span");
  box.className = "icon-box";
  render(html`<${Icon} name=${name} size=${16} />`, box);
  return box;
}

/** @param {{name: string, size?: number}} props */
export function Icon({ name, size = 18 }) {
  return html`<svg class="icon" viewBox="0 0 20 20" width=${size} height=${size} aria-hidden="true" focusable="false">
    <path d=${ICONS[name] ?? ""} fill="none" stroke="currentColor" stroke-width=${name === "more" ? 2.2 : 1.5} stroke-linecap="round" stroke-linejoin="round" />
  </svg>`;
}

// ---- buttons ----

/** Call `act` and show its error as a toast; true if it went well. @param {() => unknown} act */
export async function attempt(act) {
  try {
    await act();
    return true;
  } catch (error) {
    toast(error instanceof Error ? error.message : String(error), { kind: "error" });
    return false;
  }
}

/**
 * A button. While the promise of `onClick` is pending it is busy and a second click does nothing; its error is a toast.
 * @param {{children?: Child, onClick?: (event: MouseEvent) => unknown, kind?: "primary" | "plain" | "quiet" | "danger",
 *   icon?: string, small?: boolean, busy?: boolean, disabled?: boolean, type?: string, label?: string, [rest: string]: any}} props
 */
export function Button({ children, onClick, kind = "plain", icon, small, busy, disabled, type = "button", label, class: more, ...rest }) {
  const [pending, setPending] = useState(false);
  const held = useRef(false);
  const working = busy || pending;
  const press = async (/** @type {MouseEvent} */ event) => {
    if (!onClick || held.current || working) return;
    const outcome = attempt(() => onClick(event));
    held.current = true;
    const timer = setTimeout(() => setPending(true), 150);
    await outcome;
    clearTimeout(timer);
    held.current = false;
    setPending(false);
  };
  const name = `button ${kind}${small ? " small" : ""}${icon && !children ? " icon-only" : ""}${more ? ` ${more}` : ""}`;
  return html`<button type=${type} class=${name} disabled=${disabled} aria-disabled=${working ? "true" : undefined}
    aria-busy=${working ? "true" : undefined} aria-label=${label} title=${children ? undefined : label} onClick=${press} ...${rest}>
    ${icon && html`<${Icon} name=${icon} size=${small ? 16 : 18} />`}${children && html`<span>${children}</span>`}
  </button>`;
}

/** @param {{icon: string, label: string, onClick?: (event: MouseEvent) => unknown, [rest: string]: any}} props */
export const IconButton = ({ icon, label, ...rest }) => html`<${Button} kind="quiet" icon=${icon} label=${label} ...${rest} />`;

/** @param {{text: string | (() => string | Promise<string>), label?: string}} props */
export function CopyButton({ text, label = "Copy" }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(typeof text === "function" ? await text() : text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<${Button} kind="quiet" small icon=${copied ? "check" : "copy"} label=${copied ? "Copied" : label} onClick=${copy} />`;
}

// ---- dialogs and toasts ----

/**
 * A modal dialog. Escape and a click beside it call `onClose`; focus returns to where it was.
 * @param {{title: string, onClose: () => void, children?: Child, actions?: Child, wide?: boolean, class?: string}} props
 */
export function Dialog({ title, onClose, children, actions, wide, class: more }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    if (dialog && !dialog.open) dialog.showModal();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement) before.focus({ preventScroll: true });
    };
  }, []);
  const cancel = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (event.target === event.currentTarget) onClose();
  };
  return html`<dialog ref=${element} class=${`dialog${wide ? " wide" : ""}${more ? ` ${more}` : ""}`} aria-label=${title} onCancel=${cancel}
    onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Escape" && event.stopPropagation()}
    onMouseDown=${(/** @type {MouseEvent} */ event) => event.target === event.currentTarget && onClose()}>
    <div class="dialog-body">
      <header><h2>${title}</h2><${IconButton} icon="close" label="Close" onClick=${onClose} /></header>
      <div class="dialog-content">${children}</div>
      ${actions && html`<footer>${actions}</footer>`}
    </div>
  </dialog>`;
}

/** @typedef {{title: string, text?: Child, action?: string, danger?: boolean, done: (answer: boolean) => void}} Asked */
/** @typedef {{key: number, text: string, kind: string, action?: {label: string, act: () => unknown}}} Toast */
const asked = signal(/** @type {Asked | null} */ (null));
const toasts = signal(/** @type {Toast[]} */ ([]));
let lastToast = 0;

/** Ask before something that cannot be taken back. @param {{title: string, text?: Child, action?: string, danger?: boolean}} question @returns {Promise<boolean>} */
export function confirm(question) {
  asked.value?.done(false);
  return new Promise((done) => {
    asked.value = { ...question, done: (answer) => { asked.value = null; done(answer); } };
  });
}

/** Show a short message for some seconds; errors stay until they are closed. @param {string} text @param {{kind?: "info" | "error", action?: {label: string, act: () => unknown}}} [options] */
export function toast(text, { kind = "info", action } = {}) {
  const key = ++lastToast;
  toasts.value = [...toasts.value.filter((each) => each.text !== text).slice(-3), { key, text, kind, action }];
  if (kind !== "error") setTimeout(() => dropToast(key), action ? 10000 : 5000);
}

/** @param {number} key */
function dropToast(key) {
  toasts.value = toasts.value.filter((each) => each.key !== key);
}

function Overlays() {
  const question = asked.value;
  return html`
    <div class="toasts" role="status" aria-live="polite">${toasts.value.map((each) => html`
      <div key=${each.key} class=${`toast ${each.kind}`} role=${each.kind === "error" ? "alert" : undefined}>
        <span dir="auto">${each.text}</span>
        ${each.action && html`<${Button} small onClick=${() => { dropToast(each.key); return each.action?.act(); }}>${each.action.label}<//>`}
        <${IconButton} small icon="close" label="Close this message" onClick=${() => dropToast(each.key)} />
      </div>`)}
    </div>
    ${question && html`<${Dialog} title=${question.title} onClose=${() => question.done(false)} actions=${html`
      <${Button} onClick=${() => question.done(false)}>Cancel<//>
      <${Button} kind=${question.danger ? "danger" : "primary"} autofocus onClick=${() => question.done(true)}>${question.action ?? "OK"}<//>`}>
      <div class="prose" dir="auto">${question.text}</div>
    <//>`}`;
}
const overlays = document.createElement("div");
overlays.className = "overlays";
document.body.append(overlays);
render(html`<${Overlays} />`, overlays);

// ---- code ----

/** @param {string} line */
function diffClass(line) {
  if (line.startsWith("+++") || line.startsWith("---") || line.startsWith("diff ") || line.startsWith("index ")) return "file";
  return { "+": "added", "-": "removed", "@": "place" }[line[0] ?? ""];
}

/**
 * The lines of a diff as rows of two sides: removed lines beside those that took their place.
 * @param {string[]} lines @returns {[string | null, string | null, string?][]} Left, right, and the class of a row of its own.
 */
function pairLines(lines) {
  /** @type {[string | null, string | null, string?][]} */
  const rows = [];
  /** @type {string[]} */
  let removed = [];
  const flush = () => {
    rows.push(...removed.map((line) => /** @type {[string, null]} */ ([line, null])));
    removed = [];
  };
  for (const line of lines) {
    const kind = diffClass(line);
    if (kind === "removed") removed.push(line.slice(1));
    else if (kind === "added") rows.push([removed.shift() ?? null, line.slice(1)]);
    else {
      flush();
      rows.push(kind ? [line, null, kind] : [line.slice(1), line.slice(1)]);
    }
  }
  flush();
  return rows;
}

/** Whether diffs are shown with two sides. */
const twoSides = signal(load("diff") === "sides");

/** @param {{lines: string[]}} props */
const Sides = ({ lines }) => html`<div class="sides" tabindex="0"><table aria-label="Before and after"><tbody>${pairLines(lines).map(([left, right, kind], index) => (kind
  ? html`<tr key=${index}><td colspan="2" class=${kind}>${showHidden(left ?? "")}</td></tr>`
  : html`<tr key=${index}><td class=${right === null || left !== right ? (left === null ? "none" : "removed") : null}>${showHidden(left ?? "")}</td>
    <td class=${left === null || left !== right ? (right === null ? "none" : "added") : null}>${showHidden(right ?? "")}</td></tr>`))}</tbody></table></div>`;

/** A unified diff, coloured by line, or with its two sides; long ones are cut until asked for. @param {{text: string, lines?: number}} props */
export function Diff({ text, lines = 400 }) {
  const [whole, setWhole] = useState(false);
  const sides = twoSides.value;
  const change = () => {
    twoSides.value = !sides;
    save("diff", sides ? "" : "sides");
  };
  const all = text.replace(/\n$/, "").split("\n");
  const shown = whole ? all : all.slice(0, lines);
  return html`<div class="code-box diff" role="group" aria-label="Changes">
    <div class="code-copy"><${Button} kind="quiet" small icon="columns" label=${sides ? "One below the other" : "Side by side"} aria-pressed=${String(sides)} onClick=${change} /></div>
    ${sides ? html`<${Sides} lines=${shown} />` : html`<pre tabindex="0">${shown.map((line, index) => html`<span key=${index} class=${diffClass(line)}>${showHidden(whole ? line : line.slice(0, 2000)) + "\n"}</span>`)}</pre>`}
    ${all.length > shown.length && html`<${Button} small onClick=${() => setWhole(true)}>Show all ${formatCount(all.length)} lines<//>`}
  </div>`;
}

/** Text as it is, in a fixed width, with its copy button; long texts are cut until asked for. @param {{text: string, label?: string, copy?: boolean, wrap?: boolean}} props */
export function CodeBlock({ text, label = "Text", copy = true, wrap = true }) {
  const [whole, setWhole] = useState(false);
  const long = text.length > CLIP && !whole;
  return html`<div class="code-box" role="group" aria-label=${label}>
    <pre tabindex="0" class=${wrap ? "wrap" : undefined}><code>${showHidden(long ? text.slice(0, CLIP) : text)}</code></pre>
    ${copy && html`<div class="code-copy"><${CopyButton} text=${text} label=${`Copy ${label.toLowerCase()}`} /></div>`}
    ${long && html`<${Button} small onClick=${() => setWhole(true)}>Show all ${formatCount(text.length)} characters<//>`}
  </div>`;
}

// ---- states ----

/** @param {{label?: string}} props */
export const Spinner = ({ label = "Loading" }) => html`<div class="spinner" role="status"><span class="hidden-label">${label}</span><i></i><i></i><i></i></div>`;

/** @param {{title: string, children?: Child, icon?: string}} props */
export const Empty = ({ title, children, icon }) => html`<div class="empty">
  ${icon && html`<${Icon} name=${icon} size=${28} />`}<p class="empty-title">${title}</p>${children && html`<div class="muted">${children}</div>`}</div>`;

/** @param {{error: unknown, onRetry?: () => unknown, title?: string}} props */
export function ErrorBox({ error, onRetry, title }) {
  const text = error instanceof Error ? error.message : String(error);
  return html`<div class="error-box" role="alert"><${Icon} name="warn" /><div>${title && html`<p class="error-title">${title}</p>`}<p dir="auto">${text}</p>
    ${onRetry && html`<${Button} small icon="refresh" onClick=${onRetry}>Try again<//>`}</div></div>`;
}
