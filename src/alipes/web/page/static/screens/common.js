// What all screens share: their style, data loaded with its loading and error states, and lists of facts.
import { html, useCallback, useEffect, useRef, useState } from "../vendor/preact.js";
import { onEvent } from "../live.js";
import { pageTitle } from "../router.js";
import { drawer } from "../chat/list.js";
import { Badge, Button, ErrorBox, IconButton, lookUp, Spinner } from "./controls.js";

/** @typedef {import("../vendor/preact.js").Child} Child */
/** @template T @typedef {{data?: T, error?: unknown, loading: boolean, reload: () => Promise<void>, set: (data: T) => void}} Resource */

/**
 * The answer of `load`, loaded again when `inputs` change and when one of the live events arrives.
 * @template T @param {() => Promise<T>} load @param {unknown[]} [inputs] @param {string[]} [events]
 * @returns {Resource<T>}
 */
export function useResource(load, inputs = [], events = []) {
  const [state, setState] = useState(/** @type {{data?: T, error?: unknown, loading: boolean}} */ ({ loading: true }));
  const latest = useRef(load);
  const turn = useRef(0);
  latest.current = load;
  const reload = useCallback(async () => {
    const mine = ++turn.current;
    setState((before) => ({ ...before, loading: true }));
    try {
      const data = await latest.current();
      if (mine === turn.current) setState({ data, loading: false });
    } catch (error) {
      if (mine === turn.current) setState((before) => ({ data: before.data, error, loading: false }));
    }
  }, []);
  const set = useCallback((/** @type {T} */ data) => {
    turn.current++;
    setState({ data, loading: false });
  }, []);
  useEffect(() => {
    setState({ loading: true });
    reload();
    return () => { turn.current++; };
  }, inputs);
  useEffect(() => {
    let timer = 0;
    const soon = () => {
      clearTimeout(timer);
      timer = setTimeout(reload, 120);
    };
    const leave = events.map((type) => onEvent(type, soon));
    return () => {
      clearTimeout(timer);
      for (const each of leave) each();
    };
  }, []);
  return { ...state, reload, set };
}

/** Show a resource: its data by `children`, or that it is loading, or its error with a way to try again. @template T @param {{resource: Resource<T>, children: (data: T) => Child}} props */
export function Loaded({ resource, children }) {
  const { data, error, loading, reload } = resource;
  if (data === undefined) {
    if (error) return html`<${ErrorBox} error=${error} onRetry=${reload} />`;
    return loading ? html`<${Spinner} />` : null;
  }
  try {
    return html`${error ? html`<${ErrorBox} title="This may be out of date" error=${error} onRetry=${reload} />` : null}${children(data)}`;
  } catch (problem) {
    console.warn(problem);
    return html`<${ErrorBox} title="The server's answer could not be shown" error=${problem} onRetry=${reload} />`;
  }
}

/** Pairs of a name and a value; empty values are left out. @param {{facts: [string, Child][]}} props */
export const Facts = ({ facts }) => html`<dl class="facts">${facts
  .filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false)
  .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd dir="auto">${value}</dd></div>`)}</dl>`;

/** @param {{title: string, count?: number, children?: Child, actions?: Child}} props */
export const Section = ({ title, count, children, actions }) => html`<section class="section">
  <header><h2>${title}${count ? html`<span class="count">${count}</span>` : null}</h2>${actions}</header>${children}</section>`;

/** A way back from a detail to its list. @param {{href: string, children?: Child}} props */
export const Back = ({ href, children }) => html`<a class="back" href=${href}>← ${children}</a>`;

/** A command to run in a shell. @param {{text: string}} props */
export const Command = ({ text }) => html`<code class="command">${text}</code>`;

/** A sentence of the program: words in backticks are code. @param {{text?: string | null}} props */
export const Sentence = ({ text }) => html`<span dir="auto">${(text ?? "").split("`").map((part, place) => (place % 2 ? html`<code key=${place} dir="auto">${part}</code>` : part))}</span>`;

/** Link to a conversation. @param {{id?: string | null, title?: string | null, message?: number}} props */
export function ConversationLink({ id, title, message }) {
  if (!id) return null;
  const place = message ? `/m/${message}` : "";
  return html`<a href=${`#/c/${encodeURIComponent(id)}${place}`} dir="auto">${title || "Conversation"}</a>`;
}

/** More of a list. @param {{more?: boolean, onMore: () => unknown}} props */
export const MoreButton = ({ more, onMore }) => (more ? html`<div class="more"><${Button} onClick=${onMore}>Show more<//></div>` : null);

/** @param {unknown} error */
export const textOf = (error) => (error instanceof Error ? error.message : String(error));

/** The code of an API error, or an empty text. @param {unknown} error @returns {string} */
export const codeOf = (error) => String(/** @type {{code?: unknown}} */ (error)?.code ?? "");

/** @param {unknown} error @returns {number} */
export const statusOf = (error) => Number(/** @type {{status?: unknown}} */ (error)?.status ?? 0);

/**
 * The frame of a screen: its title, what can be done on it, and one column.
 * @param {{title: string, lead?: Child, actions?: Child, children?: Child}} props
 */
export function Page({ title, lead, actions, children }) {
  useEffect(() => { pageTitle.value = title; }, [title]);
  return html`<div class="page">
    <header class="page-head">
      <${IconButton} icon="menu" label="Open the menu" class="only-phone" onClick=${() => (drawer.value = true)} />
      <div class="page-title"><h1 tabindex="-1" dir="auto">${title}</h1>${lead && html`<p class="muted" dir="auto">${lead}</p>`}</div>
      ${actions && html`<div class="page-actions">${actions}</div>`}
    </header>
    ${children}
  </div>`;
}

const STATUSES = /** @type {Record<string, ["ok" | "warn" | "danger", string]>} */ ({ ok: ["ok", "OK"], warn: ["warn", "warning"], error: ["danger", "problem"] });

/** Results of checks, with what to do. @param {{checks: {name?: string, status: string, text?: string, fix?: string}[]}} props */
export const Checks = ({ checks }) => html`<ul class="checks">${checks.map((check, place) => {
  const [kind, word] = lookUp(STATUSES, check.status, /** @type {["warn", string]} */ (["warn", check.status]));
  return html`<li key=${place}><${Badge} kind=${kind}>${word}<//><div>${check.name ? html`<strong dir="auto">${check.name}</strong>` : null}<p><${Sentence} text=${(check.text ?? "").slice(0, 3000)} /></p>
    ${check.fix ? html`<div class="fix"><${Sentence} text=${check.fix} /></div>` : null}</div></li>`;
})}</ul>`;
