// Log: live lines with filters; only the visible ones are in the document, so ten thousand do not slow it down.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { stream } from "../live.js";
import { Button, CodeBlock, Dialog, Empty, ErrorBox, Field, formatCount, Select, Spinner, formatTime } from "./controls.js";
import { ConversationLink, Facts, Page } from "./common.js";

/** @typedef {{id: number | string, time?: number, level?: string, logger?: string, text: string, session?: string, run?: string, request?: string, trace?: string, truncated?: boolean}} Line */
/** @typedef {{lines: Line[], more?: boolean, end?: string, file?: string}} Lines */

const LEVELS = ["debug", "info", "warning", "error"];
const KEPT = 10000;
const ROW = 26;

/** @param {string | undefined} level */
const rankOf = (level) => Math.max(0, LEVELS.indexOf((level ?? "").toLowerCase().replace("critical", "error").replace(/^warn$/, "warning")));

/** @param {number | undefined} seconds */
const showTime = (seconds) => (seconds ? new Date(seconds * 1000).toLocaleTimeString(undefined, { hour12: false }) : "");
/** Oldest first. @param {Lines} found */
const inOrder = (found) => [...found.lines].reverse();

/** The lines of the log, kept up to date: loaded by filter, followed by the stream. @param {string} level @param {string} words @param {boolean} paused */
function useLines(level, words, paused) {
  const lines = useRef(/** @type {Line[]} */ ([]));
  const held = useRef(/** @type {Line[]} */ ([]));
  const [state, setState] = useState(/** @type {{loading: boolean, error?: unknown, more: boolean, count: number}} */ ({ loading: true, more: false, count: 0 }));
  const fresh = useRef(/** @type {Line[]} */ ([]));
  const timer = useRef(0);
  const following = useRef(/** @type {{close(): void} | null} */ (null));
  const filter = useRef({ level, words, paused });
  filter.current = { level, words, paused };
  const redraw = () => setState((before) => ({ ...before, count: before.count + 1 }));
  const fits = (/** @type {Line} */ line) => rankOf(line.level) >= rankOf(filter.current.level) && `${line.logger ?? ""} ${line.text} ${line.trace ?? ""}`.toLowerCase().includes(filter.current.words.toLowerCase());
  const keep = (/** @type {Line[]} */ more) => { lines.current = [...lines.current, ...more].slice(-KEPT); redraw(); };
  const load = async () => {
    setState((before) => ({ ...before, loading: true, error: undefined }));
    try {
      const { level: from, words: q } = filter.current;
      const found = /** @type {Lines} */ (await get("/v1/log", { level: from, q, limit: 1000 }));
      lines.current = inOrder(found);
      if (!following.current) follow(found.end ?? "");
      setState((before) => ({ loading: false, more: Boolean(found.more), count: before.count + 1 }));
    } catch (error) {
      setState((before) => ({ ...before, loading: false, error }));
    }
  };
  const loadOlder = async () => {
    const first = lines.current[0];
    if (!first) return;
    const found = /** @type {Lines} */ (await get("/v1/log", { level, q: words, limit: 1000, before: first.id }));
    lines.current = [...inOrder(found), ...lines.current].slice(0, KEPT);
    setState((before) => ({ ...before, more: Boolean(found.more), count: before.count + 1 }));
  };
  useEffect(() => {
    const timer = setTimeout(load, lines.current.length ? 250 : 0);
    return () => clearTimeout(timer);
  }, [level, words]);
  const flush = () => {
    timer.current = 0;
    const known = new Set(lines.current.slice(-2000).map((line) => line.id));
    const arrived = fresh.current.filter((line) => !known.has(line.id) && fits(line));
    fresh.current = [];
    if (!arrived.length) return;
    if (filter.current.paused) { held.current = [...held.current, ...arrived].slice(-KEPT); redraw(); } else keep(arrived);
  };
  const follow = (/** @type {string} */ lastId) => {
    following.current = stream("/v1/log/stream", { lastId, onEvent: (type, data) => {
      if (type === "reset") load();
      if (!data || typeof data.text !== "string") return;
      fresh.current.push(data);
      timer.current ||= setTimeout(flush, 100);
    } });
  };
  useEffect(() => () => { following.current?.close(); clearTimeout(timer.current); }, []);
  useEffect(() => {
    if (paused || !held.current.length) return;
    const waiting = held.current.filter(fits);
    held.current = [];
    keep(waiting);
  }, [paused]);
  return { lines: lines.current, held: held.current.length, state, load, loadOlder };
}

/** @param {{lines: Line[], follow: boolean, setFollow: (on: boolean) => void, onOpen: (line: Line) => void}} props */
function LineList({ lines, follow, setFollow, onOpen }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [view, setView] = useState({ first: 0, count: 60 });
  const [chosen, setChosen] = useState(-1);
  const measure = () => {
    const element = box.current;
    if (!element) return;
    const first = Math.max(0, Math.floor(element.scrollTop / ROW) - 20);
    const count = Math.ceil(element.clientHeight / ROW) + 40;
    setView((before) => (before.first === first && before.count === count ? before : { first, count }));
  };
  useEffect(() => {
    const element = /** @type {HTMLDivElement} */ (box.current);
    if (follow) element.scrollTop = element.scrollHeight;
    measure();
  }, [lines, follow]);
  useEffect(() => {
    const resize = new ResizeObserver(measure);
    resize.observe(/** @type {HTMLDivElement} */ (box.current));
    return () => resize.disconnect();
  }, []);
  const onScroll = () => {
    const element = /** @type {HTMLDivElement} */ (box.current);
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < ROW * 2;
    if (atEnd !== follow) setFollow(atEnd);
    measure();
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const line = lines[chosen];
    if (event.key === "Enter" && line) onOpen(line);
    if (!step) return;
    event.preventDefault();
    const next = chosen < 0 ? lines.length - 1 : Math.min(lines.length - 1, Math.max(0, chosen + step));
    setChosen(next);
    const element = /** @type {HTMLDivElement} */ (box.current);
    if (next * ROW < element.scrollTop) element.scrollTop = next * ROW;
    if ((next + 1) * ROW > element.scrollTop + element.clientHeight) element.scrollTop = (next + 1) * ROW - element.clientHeight;
  };
  const shown = lines.slice(view.first, view.first + view.count);
  const active = chosen >= view.first && chosen < view.first + view.count ? `line-${chosen}` : undefined;
  return html`<div ref=${box} class="log-lines" tabindex="0" role="listbox" aria-label="Log lines" aria-activedescendant=${active} onScroll=${onScroll} onKeyDown=${onKeyDown}>
    <div class="log-space" role="presentation" style=${{ height: `${lines.length * ROW}px` }}><div role="presentation" style=${{ transform: `translateY(${view.first * ROW}px)` }}>
      ${shown.map((line, place) => html`<div key=${line.id} id=${`line-${view.first + place}`} class=${`log-line ${LEVELS[rankOf(line.level)]}${view.first + place === chosen ? " chosen" : ""}`} role="option"
        aria-selected=${view.first + place === chosen ? "true" : "false"} aria-posinset=${view.first + place + 1} aria-setsize=${lines.length} onClick=${() => { setChosen(view.first + place); onOpen(line); }}>
        <span class="muted">${showTime(line.time)}</span><span class="level">${(line.level ?? "").toLowerCase().slice(0, 10)}</span><span class="muted logger">${(line.logger ?? "").slice(0, 60)}</span><span class="text" dir="auto">${line.text.slice(0, 400)}</span></div>`)}
    </div></div></div>`;
}

/** @param {{line: Line, onClose: () => void}} props */
function LineDialog({ line, onClose }) {
  return html`<${Dialog} title="Log line" wide onClose=${onClose}>
    <${Facts} facts=${[["Time", line.time ? formatTime(line.time) : ""], ["Level", line.level], ["From", line.logger], ["Conversation", line.session ? html`<${ConversationLink} id=${line.session} title=${line.session} />` : ""], ["Run", line.run], ["Request", line.request], ["Note", line.truncated ? "The line is longer; the file has all of it." : ""]]} />
    <div class="stack"><${CodeBlock} text=${line.text} label="Log line" />${line.trace ? html`<${CodeBlock} text=${line.trace} label="Traceback" wrap=${false} />` : null}</div><//>`;
}

/** @param {{route?: unknown}} _props */
export default function Screen(_props) {
  const [level, setLevel] = useState("info");
  const [words, setWords] = useState("");
  const [paused, setPaused] = useState(false);
  const [follow, setFollow] = useState(true);
  const [open, setOpen] = useState(/** @type {Line | null} */ (null));
  const { lines, held, state, load, loadOlder } = useLines(level, words, paused);
  return html`<div class="log-screen"><${Page} title="Log" actions=${html`
      <${Button} icon=${paused ? "play" : "pause"} aria-pressed=${String(paused)} onClick=${() => setPaused(!paused)}>${paused ? `Continue${held ? ` (${formatCount(held)} new)` : ""}` : "Pause"}<//>
      <${Button} icon="down" aria-pressed=${String(follow)} disabled=${follow} onClick=${() => setFollow(true)}>Follow<//>`}>
    <div class="controls"><${Select} label="Level" value=${level} onChange=${setLevel} options=${LEVELS.map((each) => ({ value: each, label: each === "error" ? "error" : `${each} and above` }))} />
      <${Field} label="Text" type="search" value=${words} onInput=${setWords} /></div>
    <p class="muted small" role="status">${state.loading ? "Loading …" : `${formatCount(lines.length)} lines`}</p>
    ${state.error ? html`<${ErrorBox} error=${state.error} onRetry=${load} />` : null}
    ${lines.length ? html`${state.more && lines.length < KEPT ? html`<div class="older"><${Button} small onClick=${loadOlder}>Load older lines<//></div>` : null}<${LineList} lines=${lines} follow=${follow && !paused} setFollow=${setFollow} onOpen=${setOpen} />`
      : state.loading ? html`<${Spinner} />` : state.error ? null : html`<${Empty} icon="list" title="No lines match" />`}
    ${open && html`<${LineDialog} line=${open} onClose=${() => setOpen(null)} />`}
  <//></div>`;
}
