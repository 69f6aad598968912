// Memory: what the agent remembers about its work and its people, with conflict detection, versions and undo.
import { html, useEffect, useState } from "../vendor/preact.js";
import { get, patch, post } from "../api.js";
import { mayChange } from "../state.js";
import { Button, confirm, Diff, Empty, Field, formatCount, LongText, lookUp, Select, Table, Time, toast } from "./controls.js";
import { ConversationLink, Loaded, Page, Section, statusOf, textOf, useResource } from "./common.js";

/**
 * @typedef {{target: string, file?: string, text: string, base?: string, entries?: unknown[], used?: number, limit?: number, label?: string}} Target
 * @typedef {{targets: Target[], people?: {scope: string, label?: string}[], pending?: number, person?: string}} Memory
 * @typedef {{number: number, target?: string, created?: number, what?: string, author?: string, diff?: string, session?: string, run?: string, sources?: string[], undone_by?: number}} Version
 */

const NAMES = /** @type {Record<string, string>} */ ({ memory: "Notes of the agent", user: "About the person" });

/** Typed texts that are not saved, by person and target: they survive leaving the screen. @type {Map<string, {text: string, base: string}>} */
const drafts = new Map();

/** One memory file as a text that can be edited. @param {{target: Target, person: string, onSaved: () => unknown}} props */
function TargetEditor({ target, person, onSaved }) {
  const key = `${person} ${target.target}`;
  const [draft, setDraft] = useState(drafts.get(key) ?? null);
  const [problem, setProblem] = useState("");
  const [conflict, setConflict] = useState(false);
  const change = (/** @type {{text: string, base: string} | null} */ next) => {
    if (next) drafts.set(key, next);
    else drafts.delete(key);
    setDraft(next);
  };
  useEffect(() => { if (draft && draft.base !== (target.base ?? "") && draft.text !== target.text) setConflict(true); }, [target.base]);
  const save = async (/** @type {string} */ base) => {
    if (!draft) return;
    setProblem("");
    try {
      await patch("/v1/memory", { target: target.target, ...(person ? { person } : {}), text: draft.text, base });
      change(null);
      setConflict(false);
      toast("Saved.");
    } catch (error) {
      setProblem(textOf(error));
      if (statusOf(error) === 409) setConflict(true);
    }
    await onSaved();
  };
  const used = draft ? [...draft.text].length : target.used ?? target.text.length;
  const hint = target.limit ? `${formatCount(used)} of ${formatCount(target.limit)} characters` : `${formatCount(used)} characters`;
  const name = target.label ?? lookUp(NAMES, target.target, target.target);
  if (!mayChange.value) return html`<${Section} title=${name}><${LongText} text=${target.text} limit=${20000} /><p class="muted small">${hint}</p><//>`;
  return html`<${Section} title=${name}>
    <${Field} label=${`Text: ${name}`} hideLabel rows=${4} value=${draft ? draft.text : target.text} hint=${hint} error=${problem}
      onInput=${(/** @type {string} */ text) => change(text === target.text ? null : { text, base: draft?.base ?? target.base ?? "" })} />
    ${conflict && draft && html`<div class="card" role="alert"><p>This memory was changed meanwhile. Your text is still above; this is the stored one:</p>
      <div class="stored" dir="auto">${target.text.slice(0, 5000) || "(empty)"}</div>
      <div class="row"><${Button} onClick=${() => save(target.base ?? "")}>Save my text over it<//><${Button} onClick=${() => { change(null); setConflict(false); setProblem(""); }}>Take the stored text<//></div></div>`}
    ${draft && !conflict && html`<div class="row"><${Button} kind="primary" onClick=${() => save(draft.base)}>Save<//><${Button} onClick=${() => { change(null); setProblem(""); }}>Discard<//></div>`}
  <//>`;
}

/** @param {{person: string, onUndone: () => unknown}} props */
function Versions({ person, onUndone }) {
  const found = useResource(() => /** @type {Promise<{versions: Version[]}>} */ (get("/v1/memory/versions", { person })), [person], ["memory"]);
  const undo = (/** @type {Version} */ version) => async () => {
    if (!(await confirm({ title: "Undo this change?", text: "Later changes stay. The undoing is a version too, so it can be undone.", action: "Undo" }))) return;
    await post("/v1/memory/undo", { version: version.number, ...(person ? { person } : {}) });
    toast("Undone.");
    await onUndone();
    await found.reload();
  };
  return html`<${Section} title="Changes"><${Loaded} resource=${found}>${(/** @type {{versions: Version[]}} */ { versions }) => (versions.length ? html`<${Table} caption="Versions" rows=${versions}
    keyOf=${(/** @type {Version} */ row) => row.number} columns=${[
      { name: "created", label: "When", render: (/** @type {Version} */ row) => html`<${Time} value=${row.created} />` },
      { name: "target", label: "Memory", render: (/** @type {Version} */ row) => html`<bdi dir="auto">${lookUp(NAMES, row.target, row.target)}</bdi>` },
      { name: "what", label: "Change", render: (/** @type {Version} */ row) => html`<${LongText} text=${[row.what, row.author].filter(Boolean).join(" · ")} limit=${300} />${row.session ? html`<${ConversationLink} id=${row.session} title="Conversation" />` : null}${row.diff ? html`<details><summary>Changes</summary><${Diff} text=${row.diff} lines=${80} /></details>` : null}` },
      { name: "act", label: "Action", hideLabel: true, align: "end", render: (/** @type {Version} */ row) => (row.undone_by ? html`<span class="muted small">undone</span>` : mayChange.value ? html`<${Button} small icon="undo" onClick=${undo(row)}>Undo<//>` : null) },
    ]} />` : html`<p class="muted">No changes yet.</p>`)}<//><//>`;
}

/** @param {{route?: unknown}} _props */
export default function Screen(_props) {
  const [person, setPerson] = useState("");
  const found = useResource(() => /** @type {Promise<Memory>} */ (get("/v1/memory", { person })), [person], ["memory"]);
  const people = (found.data?.people ?? []).map((each) => ({ value: each.scope, label: each.label || each.scope || "Owner" }));
  const options = people.some((each) => each.value === "") ? people : [{ value: "", label: "Owner" }, ...people];
  return html`<${Page} title="Memory" lead="What the agent remembers between conversations. It reads this at the start of each one.">
    ${found.data?.pending ? html`<a class="notice" href="#/skills?tab=pending">${found.data.pending === 1 ? "One proposed change waits" : `${found.data.pending} proposed changes wait`} for an answer</a>` : null}
    ${options.length > 1 && html`<div class="controls"><${Select} label="Memory of" value=${person} options=${options} onChange=${setPerson} /></div>`}
    <${Loaded} resource=${found}>${(/** @type {Memory} */ memory) => html`
      ${memory.targets.length ? memory.targets.map((target) => html`<${TargetEditor} key=${`${person} ${target.target}`} target=${target} person=${person} onSaved=${found.reload} />`) : html`<${Empty} icon="note" title="Nothing is remembered yet" />`}
      <${Versions} key=${person} person=${person} onUndone=${found.reload} />`}<//>
  <//>`;
}
