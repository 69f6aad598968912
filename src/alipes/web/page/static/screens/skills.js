// Skills: installed ones with text and versions, and proposed changes with their diff.
import { html, useState } from "../vendor/preact.js";
import { del, get, patch, post } from "../api.js";
import { go } from "../router.js";
import { mayChange } from "../state.js";
import { Badge, Button, CodeBlock, confirm, Dialog, Diff, Empty, Field, formatCount, LongText, lookUp, Table, Tabs, Text, Time, toast, Toggle } from "./controls.js";
import { SourceDialog } from "./add_source.js";
import { Back, ConversationLink, Facts, Loaded, Page, Section, textOf, useResource } from "./common.js";

/**
 * @typedef {{name: string, description?: string, source?: string, path?: string, state?: string, enabled?: boolean, plugin?: string, uses?: number, answered?: number, failed?: number,
 *   last?: number, problem?: string, text?: string, hash?: string, remarks?: string[], license?: string, compatibility?: string, tools?: string[], files?: (string | {path?: string, name?: string, size?: number})[],
 *   versions?: {number: number, created?: number, why?: string, removed?: boolean}[]}} Skill
 * @typedef {{id: string | number, kind: string, name: string, reason?: string, diff?: string, session?: string, run?: string, created?: number, text?: string, problem?: string, sources?: string[]}} Proposal
 */

/** One proposed change: its reason, its diff, and the answers. @param {{proposal: Proposal, onDone: () => unknown}} props */
export function ProposalCard({ proposal, onDone }) {
  const [text, setText] = useState(/** @type {string | null} */ (null));
  const [problem, setProblem] = useState("");
  const decide = async (/** @type {"accept" | "reject"} */ action) => {
    setProblem("");
    try {
      const answer = /** @type {{done?: string}} */ (await post(`/v1/skills/pending/${encodeURIComponent(proposal.id)}`, { action, ...(action === "accept" && text !== null ? { text } : {}) }));
      toast(answer?.done || (action === "accept" ? "Accepted." : "Rejected."));
      await onDone();
    } catch (error) {
      setProblem(textOf(error));
    }
  };
  return html`<article class="card" aria-label=${`Proposal ${proposal.name}`}>
    <header class="card-head"><span><${Badge}>${proposal.kind}<//> <strong><${Text} value=${proposal.name} /></strong></span><span class="muted small"><${Time} value=${proposal.created} /></span></header>
    <${LongText} text=${proposal.reason} limit=${600} />
    ${text !== null ? html`<${Field} label="Text to accept" rows=${12} mono value=${text} onInput=${setText} />` : proposal.diff ? html`<${Diff} text=${proposal.diff} />` : proposal.text ? html`<${CodeBlock} text=${proposal.text} label="Text" />` : null}
    ${proposal.sources?.length ? html`<p class="muted small" dir="auto">The conversation had read text of: ${proposal.sources.join(", ").slice(0, 500)}</p>` : null}
    ${proposal.session ? html`<p class="muted small">From <${ConversationLink} id=${proposal.session} title="this conversation" /></p>` : null}
    ${(problem || proposal.problem) && html`<p class="field-error" role="alert" dir="auto">${problem || proposal.problem}</p>`}
    ${mayChange.value && html`<div class="row"><${Button} kind="primary" icon="check" onClick=${() => decide("accept")}>${text === null ? "Accept" : "Accept edited"}<//>
      ${proposal.text ? (text === null ? html`<${Button} icon="edit" onClick=${() => setText(proposal.text ?? "")}>Edit<//>` : html`<${Button} onClick=${() => setText(null)}>Cancel edit<//>`) : null}
      <${Button} kind="danger" onClick=${() => decide("reject")}>Reject<//></div>`}
  </article>`;
}

function Pending() {
  const found = useResource(() => /** @type {Promise<{proposals: Proposal[]}>} */ (get("/v1/skills/pending")), [], ["skill", "memory", "inbox"]);
  return html`<${Loaded} resource=${found}>${(/** @type {{proposals: Proposal[]}} */ { proposals }) => (proposals.length
    ? html`<div class="stack">${proposals.map((each) => html`<${ProposalCard} key=${each.id} proposal=${each} onDone=${found.reload} />`)}</div>`
    : html`<${Empty} icon="check" title="Nothing is proposed">When the agent learns something from a conversation, it proposes it here.<//>`)}<//>`;
}

const KINDS = /** @type {Record<string, "warn" | "danger" | "plain">} */ ({ new: "warn", changed: "warn", broken: "danger", shadowed: "plain", off: "plain" });

/** What keeps a skill from use; nothing for one that is on. @param {{skill: Skill}} props */
function SkillState({ skill }) {
  const state = skill.state ?? (skill.problem ? "broken" : skill.enabled === false ? "off" : "on");
  return state === "on" ? null : html`<${Badge} kind=${lookUp(KINDS, state, "plain")} title=${skill.problem}>${state}<//>`;
}

/** @param {{skills: Skill[]}} props */
function SkillList({ skills }) {
  return html`<ul class="list">${skills.map((skill) => html`<li key=${skill.name}><a class="item" href=${`#/skills/${encodeURIComponent(skill.name)}`}>
    <span class="item-main"><strong><${Text} value=${skill.name} /></strong><span class="muted clamp" dir="auto">${(skill.description ?? "").slice(0, 400)}</span></span>
    <span class="item-side"><${SkillState} skill=${skill} />${skill.uses ? html`<span class="muted figure">${formatCount(skill.uses)} uses</span>` : null}<span class="muted">${skill.source ?? ""}</span></span></a></li>`)}</ul>`;
}

const TEMPLATE = [
  "---", "name: my-skill", "description: What this skill does, and when to use it. The model chooses it by this text.", "---", "",
  "The steps, in order, as a person who knows the task would tell a colleague.", "",
].join("\n");

/** @param {{onClose: () => void}} props */
function WriteDialog({ onClose }) {
  const [text, setText] = useState(TEMPLATE);
  const [problem, setProblem] = useState("");
  const create = async () => {
    setProblem("");
    try {
      const { name } = await post("/v1/skills", { text });
      onClose();
      go(`#/skills/${encodeURIComponent(name)}`);
    } catch (error) {
      setProblem(textOf(error));
    }
  };
  return html`<${Dialog} title="Write a skill" wide onClose=${onClose} actions=${html`<${Button} kind="primary" icon="check" onClick=${create}>Create<//>`}>
    <${Field} label="Text of the skill" hideLabel mono rows=${16} value=${text} onInput=${setText} error=${problem} /><//>`;
}

/** What a person should look at in the files of a skill. @param {{name: string, onClose: () => void}} props */
function CheckDialog({ name, onClose }) {
  const found = useResource(() => /** @type {Promise<{remarks: {place: string, kind: string, says: string}[]}>} */ (post(`/v1/skills/${encodeURIComponent(name)}/check`, {})), [name]);
  return html`<${Dialog} title=${`Check of ${name}`} wide onClose=${onClose}><${Loaded} resource=${found}>${(/** @type {{remarks: {place: string, kind: string, says: string}[]}} */ { remarks }) => (remarks.length
    ? html`<ul class="bare">${remarks.map((each, place) => html`<li key=${place}><${Badge} kind="warn">${each.kind}<//> <code dir="auto">${each.place}</code> <span dir="auto">${each.says}</span></li>`)}</ul>`
    : html`<p role="status">Nothing was found: no hidden text, no secrets, no dangerous commands.</p>`)}<//><//>`;
}

/** @param {{name: string}} props */
function Detail({ name }) {
  const path = `/v1/skills/${encodeURIComponent(name)}`;
  const found = useResource(() => /** @type {Promise<Skill>} */ (get(path)), [name], ["skill"]);
  const [checking, setChecking] = useState(false);
  const skill = found.data;
  const remove = async () => {
    if (!(await confirm({ title: `Remove the skill ${name}?`, text: "Its folder is deleted from this home.", action: "Remove", danger: true }))) return;
    await del(path);
    toast("Removed.");
    go("#/skills");
  };
  const rollback = (/** @type {number} */ version) => async () => {
    if (!(await confirm({ title: `Go back to version ${version}?`, text: "The present text becomes a version too, so this can be undone.", action: "Go back" }))) return;
    await post(`${path}/rollback`, { version });
    toast(`Version ${version} is in use again.`);
    await found.reload();
  };
  const accept = async () => {
    await post(`${path}/accept`, { hash: found.data?.hash });
    toast("Accepted.");
    await found.reload();
  };
  const toggle = async (/** @type {boolean} */ enabled) => { await patch(path, { enabled }); await found.reload(); };
  return html`<${Page} title=${name} lead=${skill?.description?.slice(0, 1000)} actions=${skill && mayChange.value ? html`<${Button} icon="doctor" onClick=${() => setChecking(true)}>Check its files<//><${Button} kind="danger" icon="trash" label="Remove" onClick=${remove} />` : null}>
    <${Back} href="#/skills">All skills<//>
    ${checking && html`<${CheckDialog} name=${name} onClose=${() => setChecking(false)} />`}
    <${Loaded} resource=${found}>${(/** @type {Skill} */ data) => html`
      ${data.problem ? html`<p class="field-error" dir="auto">${data.problem}</p>` : null}
      ${data.state === "new" || data.state === "changed" ? html`<div class="notice row"><span>${data.state === "new" ? "The agent does not use this skill until you accept its text below." : "Its text was changed since you accepted it. The agent does not use it until you accept it again."}</span>${mayChange.value ? html`<${Button} kind="primary" icon="check" onClick=${accept}>Accept<//>` : null}</div>` : null}
      ${mayChange.value ? html`<${Toggle} label="In use" checked=${data.enabled !== false} onChange=${toggle} />` : html`<${SkillState} skill=${data} />`}
      <${Facts} facts=${[["Source", data.plugin ? `plugin ${data.plugin}` : data.source], ["Remarks", data.remarks?.join("\n")], ["License", data.license], ["Compatibility", data.compatibility], ["Tools", Array.isArray(data.tools) ? data.tools.join(", ") : data.tools], ["Path", data.path && html`<code dir="auto">${data.path}</code>`], ["Used", data.uses ? `${formatCount(data.uses)} times; answered ${formatCount(data.answered)}, failed ${formatCount(data.failed)}` : "never"],
        ["Last used", data.last ? html`<${Time} value=${data.last} />` : ""], ["Files", data.files?.length ? data.files.map((each) => (typeof each === "string" ? each : each.path ?? each.name)).join(", ") : ""]]} />
      <${Section} title="Text"><${CodeBlock} text=${data.text ?? ""} label="Text of the skill" /><//>
      <${Section} title="Versions">${data.versions?.length ? html`<${Table} caption="Versions" rows=${[...data.versions].sort((one, two) => two.number - one.number)} keyOf=${(/** @type {{number: number}} */ row) => row.number} columns=${[
        { name: "number", label: "Version" }, { name: "created", label: "From", render: (/** @type {any} */ row) => html`<${Time} value=${row.created} />` },
        { name: "why", label: "Why", render: (/** @type {any} */ row) => html`<${LongText} text=${row.why} limit=${300} />${row.removed ? html` <${Badge}>removed<//>` : null}` },
        { name: "act", label: "Action", hideLabel: true, align: "end", render: (/** @type {any} */ row) => (mayChange.value ? html`<${Button} small icon="undo" onClick=${rollback(row.number)}>Go back<//>` : null) },
      ]} />` : html`<p class="muted">No earlier versions.</p>`}<//>`}<//>
  <//>`;
}

/** @param {{route: {params: string[], query: URLSearchParams}}} props */
export default function Screen({ route }) {
  const found = useResource(() => /** @type {Promise<{skills: Skill[], pending?: number}>} */ (get("/v1/skills")), [], ["skill"]);
  const [words, setWords] = useState("");
  const [adding, setAdding] = useState("");
  const name = route.params[0];
  if (name) return html`<${Detail} key=${name} name=${name} />`;
  const tab = route.query.get("tab") === "pending" ? "pending" : "installed";
  return html`<${Page} title="Skills" lead="Instructions that the agent reads when they fit."
    actions=${mayChange.value && html`<${Button} icon="edit" onClick=${() => setAdding("text")}>Write one<//><${Button} kind="primary" icon="plus" onClick=${() => setAdding("source")}>Add a skill<//>`}>
    <${Tabs} label="Skills" current=${tab} onChange=${(/** @type {string} */ next) => go(next === "pending" ? "#/skills?tab=pending" : "#/skills", { replace: true })}
      tabs=${[{ id: "installed", label: "Installed" }, { id: "pending", label: "Proposed", count: found.data?.pending }]} />
    ${tab === "pending" ? html`<${Pending} />` : html`<${Loaded} resource=${found}>${(/** @type {{skills: Skill[]}} */ { skills }) => {
      const shown = skills.filter((each) => `${each.name} ${each.description ?? ""}`.toLowerCase().includes(words.toLowerCase()));
      return html`${skills.length > 8 ? html`<${Field} label="Filter skills" hideLabel type="search" placeholder="Filter" value=${words} onInput=${setWords} />` : null}
        ${skills.length ? (shown.length ? html`<${SkillList} skills=${shown} />` : html`<p class="muted">No skill matches.</p>`) : html`<${Empty} icon="book" title="No skills are installed">Add one from a folder or repository, or write your own.<//>`}`;
    }}<//>`}
    ${adding === "text" && html`<${WriteDialog} onClose=${() => setAdding("")} />`}
    ${adding === "source" && html`<${SourceDialog} title="Add a skill" onClose=${() => setAdding("")} action="Install"
      hint="A folder on this server, the address of a Git repository or archive, or owner/name on GitHub."
      warning="The model follows a skill when it fits a task. What it then does is asked about as usual."
      look=${async (/** @type {string} */ source) => (await post("/v1/skills/look", { source })).skills}
      install=${async (/** @type {string} */ source, /** @type {import("./add_source.js").Offer} */ offer) => {
        await post("/v1/skills", { source, name: offer.name, sha256: offer.sha256 });
        toast(`${offer.name} is installed.`);
        await found.reload();
      }} />`}
  <//>`;
}
