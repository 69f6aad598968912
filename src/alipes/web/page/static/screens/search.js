// Search in all conversations: each hit with its context, opened at its message.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { go } from "../router.js";
import { Badge, Button, Empty, Field, Text, Time } from "./controls.js";
import { Loaded, Page, useResource } from "./common.js";

/** @typedef {{session: string, title?: string, origin?: string, message?: number, role?: string, snippet?: string, when: number}} Hit */

/** The text with the searched words marked. @param {{text: string, words: string}} props */
export function Marked({ text, words }) {
  const parts = words.split(/\s+/).map((word) => word.replace(/^["'(]+|["')*]+$/g, "")).filter((word) => word.length > 1 && !/^(AND|OR|NOT|NEAR)$/.test(word));
  if (!parts.length) return html`<span dir="auto">${text}</span>`;
  const pattern = new RegExp(`(${parts.map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "gi");
  return html`<span dir="auto">${text.split(pattern).map((part, place) => (place % 2 ? html`<mark key=${place}>${part}</mark>` : part))}</span>`;
}

/** The part of a long text around the first hit. @param {string} text @param {string} words */
function cut(text, words) {
  if (text.length <= 400) return text;
  const first = words.split(/\s+/).find(Boolean)?.toLowerCase() ?? "";
  const place = Math.max(0, text.toLowerCase().indexOf(first) - 120);
  return `${place ? "… " : ""}${text.slice(place, place + 400)} …`;
}

/** @param {{hit: Hit, words: string}} props */
function HitItem({ hit, words }) {
  return html`<li><a class="item hit" href=${`#/c/${encodeURIComponent(hit.session)}${hit.message ? `/m/${hit.message}` : ""}`}>
    <span class="item-main"><span><strong><${Text} value=${hit.title || "Conversation"} /></strong> <span class="muted small figure">${hit.role === "user" ? "you" : hit.role ?? ""} · <${Time} value=${hit.when} /></span></span>
      <span class="clamp-3"><${Marked} text=${cut(hit.snippet ?? "", words)} words=${words} /></span></span>
    <span class="item-side">${hit.origin ? html`<${Badge}>${hit.origin}<//>` : null}</span></a></li>`;
}

/** @param {{words: string}} props */
function Results({ words }) {
  const [limit, setLimit] = useState(30);
  const found = useResource(() => /** @type {Promise<{hits: Hit[]}>} */ (get("/v1/sessions/search", { q: words, limit })), [words, limit]);
  return html`<${Loaded} resource=${found}>${(/** @type {{hits: Hit[]}} */ data) => {
    const { hits } = data;
    if (!hits.length) return html`<${Empty} icon="search" title="No messages match">Try other or fewer words.<//>`;
    return html`<p class="hidden-label" role="status">${hits.length} messages found</p><ul class="list">${hits.map((hit, place) => html`<${HitItem} key=${`${hit.message ?? ""} ${place}`} hit=${hit} words=${words} />`)}</ul>
      ${hits.length >= limit && limit < 100 ? html`<div class="more"><${Button} onClick=${() => setLimit(100)}>Show more<//></div>` : null}`;
  }}<//>`;
}

/** @param {{route: {params: string[], query: URLSearchParams}}} props */
export default function Screen({ route }) {
  const words = route.query.get("q") ?? "";
  const [typed, setTyped] = useState(words);
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => { input.current?.focus(); }, []);
  useEffect(() => { if (words !== typed.trim()) setTyped(words); }, [words]);
  useEffect(() => {
    const timer = setTimeout(() => typed.trim() !== words && go(`#/search?q=${encodeURIComponent(typed.trim())}`, { replace: true }), 300);
    return () => clearTimeout(timer);
  }, [typed]);
  return html`<${Page} title="Search">
    <form role="search" class="search-form" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); go(`#/search?q=${encodeURIComponent(typed.trim())}`, { replace: true }); }}>
      <${Field} label="Words in any conversation" hideLabel type="search" placeholder="Words in any conversation" value=${typed} onInput=${setTyped} inputRef=${input} />
    </form>
    ${words ? html`<${Results} key=${words} words=${words} />` : html`<p class="muted">Finds messages of every conversation: terminal, messengers, schedules and this page.</p>`}
  <//>`;
}
