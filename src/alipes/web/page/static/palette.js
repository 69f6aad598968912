// Ctrl-K: finds conversations, screens, commands, settings, skills, schedules and people by a few letters.
import { html, render, useEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { get } from "./api.js";
import { go, route } from "./router.js";
import { caller, conversations } from "./state.js";
import { Icon, Text } from "./ui.js";

/**
 * @typedef {{kind: string, icon: string, label: string, note?: string, run: () => unknown}} Entry
 * @typedef {{id: string, title?: string, preview?: string, origin?: string}} Conversation
 */

const SCREENS = [
  ["inbox", "Inbox", "inbox"], ["search", "Search", "search"], ["usage", "Usage", "chart"], ["schedules", "Schedules", "clock"], ["skills", "Skills", "book"],
  ["memory", "Memory", "note"], ["mcp", "MCP servers", "server"], ["agents", "Other agents", "people"], ["plugins", "Plugins", "plug"], ["people", "People", "people"], ["people/platforms", "Platforms", "people"],
  ["people/outbox", "Outbox", "send"], ["settings", "Settings", "settings"], ["log", "Log", "list"], ["doctor", "Doctor", "doctor"], ["cluster", "Cluster", "server"], ["browsers", "Browsers", "device"],
];
const SHOWN = 40;

/** How well the letters of `words` are found in `text` in their order; -1: they are not. @param {string} words @param {string} text @returns {number} */
export function score(words, text) {
  const low = text.toLowerCase();
  let total = 0;
  for (const word of words.toLowerCase().split(/\s+/).filter(Boolean)) {
    const place = low.indexOf(word);
    if (place >= 0) {
      total += 100 - Math.min(place, 40) + (place === 0 || /[\s._/-]/.test(low[place - 1] ?? "") ? 60 : 0);
      continue;
    }
    let at = -1;
    let gaps = 0;
    for (const letter of word) {
      const next = low.indexOf(letter, at + 1);
      if (next < 0) return -1;
      if (at >= 0) gaps += next - at - 1;
      at = next;
    }
    if (gaps > 12 + word.length) return -1;
    total += Math.max(1, 40 - gaps * 2);
  }
  return total - Math.min(20, text.length / 20);
}

/** @param {string} words @param {string} text */
const hasWords = (words, text) => words.toLowerCase().split(/\s+/).every((word) => text.toLowerCase().includes(word));

/** @param {Conversation} session @returns {Entry} */
const conversationEntry = (session) => ({ kind: "Conversation", icon: "chat", label: (session.title || session.preview || "Untitled").slice(0, 160), note: session.origin, run: () => go(`#/c/${encodeURIComponent(session.id)}`) });

/** Everything that needs no search on the server. @returns {Promise<Entry[]>} */
async function loadEntries() {
  const session = route.value.name === "c" ? route.value.params[0] : undefined;
  /** @type {[string, (answer: any) => Entry[]][]} */
  const sources = [
    ["/v1/schedules", ({ jobs }) => jobs.map((/** @type {any} */ job) => ({ kind: "Schedule", icon: "clock", label: job.name, note: job.when_text, run: () => go(`#/schedules/${encodeURIComponent(job.id)}`) }))],
    ["/v1/skills", ({ skills }) => skills.map((/** @type {any} */ skill) => ({ kind: "Skill", icon: "book", label: skill.name, note: (skill.description ?? "").slice(0, 120), run: () => go(`#/skills/${encodeURIComponent(skill.name)}`) }))],
    ["/v1/people", ({ people }) => people.map((/** @type {any} */ person) => ({ kind: "Person", icon: "people", label: person.name || String(person.user), note: person.platform, run: () => go("#/people") }))],
    ["/v1/settings", ({ settings }) => settings.map((/** @type {any} */ setting) => ({ kind: "Setting", icon: "settings", label: setting.key, note: (setting.description ?? "").slice(0, 120), run: () => go(`#/settings/${encodeURIComponent(setting.key)}`) }))],
    ["/v1/commands", ({ commands }) => (session ? commands.map((/** @type {any} */ command) => ({ kind: "Command", icon: "tool", label: `/${String(command.name).replace(/^\//, "")}`, note: command.help, run: () => putCommand(`/${String(command.name).replace(/^\//, "")} `) })) : [])],
  ];
  const answers = await Promise.all(sources.map(([path, read]) => get(path, path === "/v1/commands" && session ? { session } : {}).then(read).catch(() => /** @type {Entry[]} */ ([]))));
  return answers.flat();
}

/** Put a command into the input of the chat. @param {string} text */
function putCommand(text) {
  const input = document.querySelector("main textarea");
  if (!(input instanceof HTMLTextAreaElement)) return;
  input.value = text;
  input.dispatchEvent(new Event("input", { bubbles: true }));
  input.focus();
}

/** @param {{onClose: () => void}} props */
function Palette({ onClose }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const list = useRef(/** @type {HTMLUListElement | null} */ (null));
  const [words, setWords] = useState("");
  const [place, setPlace] = useState(0);
  const [loaded, setLoaded] = useState(/** @type {Entry[]} */ ([]));
  const [found, setFound] = useState(/** @type {Conversation[]} */ ([]));
  useEffect(() => {
    dialog.current?.showModal();
    loadEntries().then(setLoaded);
    return () => dialog.current?.close();
  }, []);
  useEffect(() => {
    if (!words.trim()) { setFound([]); return undefined; }
    let left = false;
    const timer = setTimeout(() => get("/v1/sessions", { q: words.trim(), limit: 20 }).then((answer) => left || setFound(answer.sessions ?? [])).catch(() => {}), 200);
    return () => { left = true; clearTimeout(timer); };
  }, [words]);
  const entries = useMemo(() => choose(words, loaded, found), [words, loaded, found]);
  useEffect(() => setPlace(0), [words]);
  useEffect(() => { list.current?.children[place]?.scrollIntoView({ block: "nearest" }); }, [place]);
  const pick = (/** @type {Entry | undefined} */ entry) => { if (!entry) return; onClose(); entry.run(); };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key] ?? 0;
    if (step) setPlace((place + step + entries.length) % Math.max(1, entries.length));
    else if (event.key === "Enter" && !event.isComposing) pick(entries[place]);
    else if (event.key === "Escape") onClose();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<dialog ref=${dialog} class="dialog palette" aria-label="Go to" onCancel=${(/** @type {Event} */ event) => { event.preventDefault(); onClose(); }} onMouseDown=${(/** @type {MouseEvent} */ event) => event.target === event.currentTarget && onClose()}>
    <div class="palette-input"><${Icon} name="search" /><input type="text" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant=${entries.length ? `palette-${place}` : undefined} aria-label="Go to a conversation, screen, setting, skill, schedule or person" aria-autocomplete="list"
      placeholder="Conversations, screens, settings, skills …" autocomplete="off" spellcheck=${false} dir="auto" value=${words} autofocus onInput=${(/** @type {{currentTarget: HTMLInputElement}} */ event) => setWords(event.currentTarget.value)} onKeyDown=${onKeyDown} /></div>
    <ul ref=${list} id="palette-list" role="listbox" aria-label="Results">${entries.map((entry, index) => html`<li key=${`${entry.kind} ${entry.label} ${index}`} id=${`palette-${index}`} role="option" aria-selected=${index === place ? "true" : "false"}
      onMouseMove=${() => index !== place && setPlace(index)} onClick=${() => pick(entry)}><${Icon} name=${entry.icon} /><span class="palette-label"><${Text} value=${entry.label} /></span><span class="muted palette-note" dir="auto">${entry.note ?? ""}</span><span class="muted small">${entry.kind}</span></li>`)}</ul>
    ${entries.length ? null : html`<p class="muted palette-none" role="status">Nothing matches.</p>`}
  </dialog>`;
}

/** The entries that match, best first. @param {string} words @param {Entry[]} loaded @param {Conversation[]} found @returns {Entry[]} */
function choose(words, loaded, found) {
  /** @type {Entry[]} */
  const screens = [
    { kind: "Action", icon: "plus", label: "New conversation", run: () => go("#/new") },
    ...SCREENS.filter(([path]) => path !== "cluster" || caller.value?.clustered).map(([path = "", label = "", icon = ""]) => ({ kind: "Screen", icon, label, run: () => go(`#/${path}`) })),
  ];
  const known = new Map([...conversations.value, ...found].map((session) => [session.id, session]));
  const chats = [...known.values()].map(conversationEntry);
  if (!words.trim()) return [...chats.slice(0, 6), ...screens];
  const foundLabels = new Set(found.map((session) => conversationEntry(session).label));
  const bonus = /** @type {Record<string, number>} */ ({ Screen: 30, Action: 30, Conversation: 15, Command: 10 });
  const hits = [...screens, ...chats, ...loaded]
    .map((entry) => ({ entry, points: Math.max(score(words, entry.label), hasWords(words, `${entry.label} ${entry.note ?? ""}`) ? 10 : -1, entry.kind === "Conversation" && foundLabels.has(entry.label) ? 20 : -1) + (bonus[entry.kind] ?? 0) }))
    .filter(({ entry, points }) => points - (bonus[entry.kind] ?? 0) > -1)
    .sort((one, two) => two.points - one.points)
    .slice(0, SHOWN).map(({ entry }) => entry);
  hits.push({ kind: "Search", icon: "search", label: `Search messages for “${words.trim()}”`, run: () => go(`#/search?q=${encodeURIComponent(words.trim())}`) });
  return hits;
}

const host = document.createElement("div");
document.body.append(host);

/** Open the palette, or close it if it is open. */
export function openPalette() {
  const before = document.activeElement;
  if (host.childElementCount) { render(null, host); return; }
  const close = () => {
    render(null, host);
    if (before instanceof HTMLElement) before.focus({ preventScroll: true });
  };
  render(html`<${Palette} onClose=${close} />`, host);
}
