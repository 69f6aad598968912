// Memory: what the agent remembers about its work and its people, with conflict detection, versions and undo.
import { html, useEffect, useState } from "../vendor/preact.js";
import { get, patch, post } from "../api.js";
import { mayChange } from "../state.js";
import { Badge, Button, confirm, Diff, Empty, Field, formatCount, LongText, Select, Table, Time, toast } from "./controls.js";
import { Loaded, Page, Section, statusOf, textOf, useResource } from "./common.js";

/**
 * @typedef {{target: string, text: string, base?: string, entries?: unknown[], used?: number, limit?: number, label?: string}} Target
 * @typedef {{targets: Target[], people?: (string | {id?: string, person?: string, name?: string, label?: string})[], pending?: number, person?: string}} Memory
 * @typedef {{number?: number, version?: number, target?: string, created?: number, why?: string, text?: string, diff?: string, person?: string}} Version
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
  const name = target.label ?? NAMES[target.target] ?? target.target;
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
    const number = version.number ?? version.version;
    if (!(await confirm({ title: "Go back to this version?", text: "The present text becomes a version too, so this can be undone.", action: "Go back" }))) return;
    await post("/v1/memory/undo", { target: version.target, version: number, ...(person ? { person } : {}) });
    toast("The earlier text is in use again.");
    await onUndone();
    await found.reload();
  };
  return html`<${Section} title="Versions"><${Loaded} resource=${found}>${(/** @type {{versions: Version[]}} */ { versions }) => (versions.length ? html`<${Table} caption="Versions" rows=${versions}
    keyOf=${(/** @type {Version} */ row) => `${row.target} ${row.number ?? row.version}`} columns=${[
      { name: "created", label: "From", render: (/** @type {Version} */ row) => html`<${Time} value=${row.created} />` },
      { name: "target", label: "Memory", render: (/** @type {Version} */ row) => html`<${Badge}>${NAMES[row.target ?? ""] ?? row.target}<//>` },
      { name: "why", label: "Change", render: (/** @type {Version} */ row) => html`${row.why ? html`<${LongText} text=${row.why} limit=${300} />` : null}${row.diff ? html`<details><summary>Changes</summary><${Diff} text=${row.diff} lines=${80} /></details>` : row.text ? html`<details><summary>Text</summary><${LongText} text=${row.text} /></details>` : null}` },
      { name: "act", label: "Action", hideLabel: true, align: "end", render: (/** @type {Version} */ row) => (mayChange.value ? html`<${Button} small icon="undo" onClick=${undo(row)}>Go back<//>` : null) },
    ]} />` : html`<p class="muted">No earlier versions.</p>`)}<//><//>`;
}

/** @param {{route?: unknown}} _props */
export default function Screen(_props) {
  const [person, setPerson] = useState("");
  const found = useResource(() => /** @type {Promise<Memory>} */ (get("/v1/memory", { person })), [person], ["memory"]);
  const people = (found.data?.people ?? []).map((each) => (typeof each === "string" ? { value: each, label: each || "Owner" } : { value: each.person ?? each.id ?? "", label: each.label ?? each.name ?? each.person ?? each.id ?? "" }));
  const options = people.some((each) => each.value === "") ? people : [{ value: "", label: "Owner" }, ...people];
  return html`<${Page} title="Memory" lead="What the agent remembers between conversations. It reads this at the start of each one.">
    ${found.data?.pending ? html`<a class="notice" href="#/skills?tab=pending">${found.data.pending === 1 ? "One proposed change waits" : `${found.data.pending} proposed changes wait`} for an answer</a>` : null}
    ${options.length > 1 && html`<div class="controls"><${Select} label="Memory of" value=${person} options=${options} onChange=${setPerson} /></div>`}
    <${Loaded} resource=${found}>${(/** @type {Memory} */ memory) => html`
      ${memory.targets.length ? memory.targets.map((target) => html`<${TargetEditor} key=${`${person} ${target.target}`} target=${target} person=${person} onSaved=${found.reload} />`) : html`<${Empty} icon="note" title="Nothing is remembered yet" />`}
      <${Versions} key=${person} person=${person} onUndone=${found.reload} />`}<//>
  <//>`;
}
