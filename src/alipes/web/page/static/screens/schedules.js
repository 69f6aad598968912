// Schedules: when each job runs in words and times, its history, and changing it with a preview of its times.
import { html, useEffect, useState } from "../vendor/preact.js";
import { del, get, patch, post } from "../api.js";
import { go } from "../router.js";
import { mayChange } from "../state.js";
import { Badge, Button, CodeBlock, confirm, Empty, Field, formatDuration, formatTime, LongText, lookUp, Select, Table, Tabs, Text, Time, toast, Toggle } from "./controls.js";
import { Back, ConversationLink, Facts, Loaded, Page, Section, textOf, useResource } from "./common.js";

/**
 * @typedef {{status: string, time: number, detail?: string, session?: string}} LastRun
 * @typedef {{id: string, name: string, kind: string, trigger?: string, prompt?: string, script?: string, when: string, when_text?: string, zone?: string, next?: number[],
 *   state: string, last?: LastRun | null, deliver?: string[], model?: string, skills?: string[], tools?: string[] | null, folder?: string,
 *   permission_mode?: string, budget?: string, daily_budget?: string, quiet_hours?: string, missed?: string, overlap?: string, jitter?: number,
 *   after?: string, retries?: number, retry?: number, together?: boolean, owner?: string, untrusted?: string, fixed?: boolean}} Job
 * @typedef {{id: number, due?: number, started?: number | null, ended?: number | null, status: string, detail?: string, session?: string, run?: string, cause?: string, attempt?: number}} JobRun
 * @typedef {{when_text: string, next: number[], zone?: string}} Preview
 */

const KINDS = /** @type {Record<string, "ok" | "warn" | "danger" | "accent" | "plain">} */ ({ ok: "ok", failed: "danger", running: "accent", waiting: "accent", stopped: "warn", skipped: "plain" });
const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

/** @param {{job: Job}} props */
const State = ({ job }) => html`<${Badge} kind=${job.state === "active" ? "ok" : job.state === "paused" ? "warn" : "plain"}>${job.state}<//>`;

/** @param {{status: string, title?: string}} props */
const Status = ({ status, title }) => html`<${Badge} kind=${lookUp(KINDS, status, "plain")} title=${title}>${status}<//>`;

/** The next times, in the viewer's zone and in the job's if it is another. @param {{times?: number[], zone?: string}} props */
function NextTimes({ times, zone }) {
  if (!times?.length) return html`<p class="muted">No time is planned.</p>`;
  const other = Boolean(zone && zone !== HERE);
  return html`<${Table} caption="Next times" rows=${times.map((time) => ({ time }))} keyOf=${(/** @type {{time: number}} */ row) => row.time} columns=${[
    { name: "here", label: `Here (${HERE})`, render: (/** @type {{time: number}} */ row) => html`<span class="figure">${formatTime(row.time)}</span>` },
    ...(other ? [{ name: "zone", label: `Job (${zone})`, render: (/** @type {{time: number}} */ row) => html`<span class="figure">${formatTime(row.time, zone)}</span>` }] : []),
    { name: "age", label: "In", align: "end", render: (/** @type {{time: number}} */ row) => html`<${Time} value=${row.time} />` },
  ]} />`;
}

/** What the typed time means, asked from the server while typing. @param {{when: string, zone: string, onProblem: (text: string) => void}} props */
function PreviewTimes({ when, zone, onProblem }) {
  const [preview, setPreview] = useState(/** @type {Preview | null} */ (null));
  useEffect(() => {
    let left = false;
    if (!when.trim()) { setPreview(null); onProblem(""); return undefined; }
    const timer = setTimeout(async () => {
      try {
        const found = /** @type {Preview} */ (await post("/v1/schedules/preview", { when, zone }));
        if (!left) { setPreview(found); onProblem(""); }
      } catch (error) {
        if (!left) { setPreview(null); onProblem(textOf(error)); }
      }
    }, 250);
    return () => { left = true; clearTimeout(timer); };
  }, [when, zone]);
  return html`<div class="preview" aria-live="polite">${preview && html`<p><strong dir="auto">${preview.when_text}</strong></p>
    ${preview.next?.length ? html`<ul class="times">${preview.next.map((time) => html`<li key=${time} class="figure">${formatTime(time)}${zone && zone !== HERE ? html` <span class="muted">(${formatTime(time, zone)} ${zone})</span>` : null}</li>`)}</ul>` : null}`}</div>`;
}

/** The fields of a job as texts, for a form. @param {Partial<Job>} job @param {string} zone @returns {Record<string, string>} */
function draftOf(job, zone) {
  return {
    name: job.name ?? "", kind: job.script ? "script" : "prompt", text: job.script || job.prompt || "", when: job.when ?? "", zone: job.zone ?? zone,
    deliver: (job.deliver ?? []).join(", "), model: job.model ?? "", skills: (job.skills ?? []).join(", "), tools: (job.tools ?? []).join(", "), folder: job.folder ?? "",
    permission_mode: job.permission_mode ?? "ask", budget: job.budget ?? "", daily_budget: job.daily_budget ?? "", quiet_hours: job.quiet_hours ?? "",
    missed: job.missed ?? "once", overlap: job.overlap ?? "skip", jitter: String(job.jitter ?? 0), retries: String(job.retries ?? 0), together: job.together ? "yes" : "",
  };
}

const LISTS = ["deliver", "skills", "tools"];

/** What differs between two drafts, as the API wants it. @param {Record<string, string>} draft @param {Record<string, string>} before */
function changesOf(draft, before) {
  /** @type {Record<string, unknown>} */
  const changes = {};
  for (const [name, value] of Object.entries(draft)) {
    if (value === before[name] && !(name === "text" && draft.kind !== before.kind)) continue;
    if (name === "kind") continue;
    if (name === "text") changes[draft.kind === "script" ? "script" : "prompt"] = value;
    else if (name === "tools") changes[name] = value.trim() ? splitList(value) : null;
    else if (LISTS.includes(name)) changes[name] = splitList(value);
    else if (name === "jitter" || name === "retries") changes[name] = Number(value);
    else if (name === "together") changes[name] = value === "yes";
    else changes[name] = value.trim();
  }
  return changes;
}

/** @param {string} text */
const splitList = (text) => text.split(",").map((each) => each.trim()).filter(Boolean);

/** @param {{job?: Job, zone: string, onSaved: (job: Job) => void, onCancel: () => void}} props */
function JobForm({ job, zone, onSaved, onCancel }) {
  const [before] = useState(() => draftOf(job ?? {}, zone));
  const [draft, setDraft] = useState(before);
  const [whenProblem, setWhenProblem] = useState("");
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const bind = (/** @type {string} */ name) => ({ value: draft[name] ?? "", onInput: (/** @type {string} */ value) => setDraft((now) => ({ ...now, [name]: value })) });
  const choose = (/** @type {string} */ name) => (/** @type {string} */ value) => setDraft((now) => ({ ...now, [name]: value }));
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setProblem("");
    try {
      const changes = changesOf(draft, job ? before : { zone: before.zone ?? "", ...Object.fromEntries(Object.entries(before).filter(([name]) => !["name", "text", "when"].includes(name))) });
      onSaved(/** @type {Job} */ (job ? await patch(`/v1/schedules/${encodeURIComponent(job.id)}`, changes) : await post("/v1/schedules", changes)));
    } catch (error) {
      setProblem(textOf(error));
      setBusy(false);
    }
  };
  const zones = [...new Set([zone, HERE, "UTC", draft.zone ?? "", ...(Intl.supportedValuesOf?.("timeZone") ?? [])])].filter(Boolean);
  return html`<form class="stack form" onSubmit=${submit}>
    <${Field} label="When" ...${bind("when")} error=${whenProblem} autofocus=${!job} hint="Such as “every weekday at 9”, “in 30m”, “0 9 * * 1-5”, “after NAME” or “manual”." />
    <${PreviewTimes} when=${draft.when ?? ""} zone=${draft.zone ?? ""} onProblem=${setWhenProblem} />
    <${Select} label="Time zone" value=${draft.zone} options=${zones} onChange=${choose("zone")} />
    <${Select} label="What it does" value=${draft.kind} options=${[{ value: "prompt", label: "Ask the agent" }, { value: "script", label: "Run shell commands without a model" }]} onChange=${choose("kind")} />
    <${Field} label=${draft.kind === "script" ? "Shell commands" : "Prompt"} rows=${5} mono=${draft.kind === "script"} ...${bind("text")} />
    <${Field} label="Name" ...${bind("name")} hint="Lowercase letters, digits, and -, _ or . between them. Empty: taken from the text." />
    <${Field} label="Deliver the answer to" ...${bind("deliver")} hint="home, a platform, platform:chat, an https address, files or none; several with commas. Empty: the default chat." />
    <details class="more-options"><summary>More options</summary><div class="stack">
      <${Select} label="Permissions" value=${draft.permission_mode} onChange=${choose("permission_mode")} hint="Nobody can be asked while it runs, so “ask” denies risky calls."
        options=${[{ value: "ask", label: "ask: deny risky calls" }, { value: "edits", label: "edits: allow file edits in the folder" }, { value: "plan", label: "plan: only tools that read" }, { value: "all", label: "all: allow everything" }]} />
      <${Field} label="Folder" mono ...${bind("folder")} />
      <${Field} label="Model" mono ...${bind("model")} hint="Empty: the default model." />
      <${Field} label="Skills" ...${bind("skills")} hint="Names with commas." />
      <${Field} label="Tools" ...${bind("tools")} hint="Names with commas; empty: all." />
      <${Field} label="Budget of one run" ...${bind("budget")} hint="Such as $0.50 or 200k tokens; empty: no limit." />
      <${Field} label="Budget of a day" ...${bind("daily_budget")} />
      <${Field} label="Quiet hours" ...${bind("quiet_hours")} hint="Such as 22:00-07:00." />
      <${Field} label="Missed runs" ...${bind("missed")} hint="once, skip, or the age up to which a missed run still starts, such as 2h." />
      <${Select} label="If the last run is not over" value=${draft.overlap} onChange=${choose("overlap")} options=${[{ value: "skip", label: "skip this run" }, { value: "queue", label: "wait for it" }, { value: "parallel", label: "run beside it" }]} />
      <${Field} label="Start up to this many seconds later" type="number" min="0" ...${bind("jitter")} />
      <${Field} label="Retries" type="number" min="0" ...${bind("retries")} />
      <${Toggle} label="All runs share one conversation" checked=${draft.together === "yes"} onChange=${(/** @type {boolean} */ on) => choose("together")(on ? "yes" : "")} />
    </div></details>
    ${problem && html`<p class="field-error" role="alert" dir="auto">${problem}</p>`}
    <div class="row"><${Button} type="submit" kind="primary" busy=${busy} disabled=${!draft.when?.trim() || !draft.text?.trim()}>${job ? "Save" : "Add job"}<//><${Button} onClick=${onCancel}>Cancel<//></div>
  </form>`;
}

/** @param {{job: Job, reload: () => Promise<void>, onEdit: () => void}} props */
function JobActions({ job, reload, onEdit }) {
  if (!mayChange.value) return null;
  const act = (/** @type {string} */ action, /** @type {string} */ done) => async () => { await post(`/v1/schedules/${encodeURIComponent(job.id)}/${action}`, {}); toast(done); await reload(); };
  const remove = async () => {
    if (!(await confirm({ title: "Delete this job?", text: `“${job.name}” will not run again. A run that has started goes to its end.`, action: "Delete", danger: true }))) return;
    await del(`/v1/schedules/${encodeURIComponent(job.id)}`);
    toast("Deleted.");
    go("#/schedules");
  };
  const running = job.last?.status === "running" || job.last?.status === "waiting";
  return html`<${Button} icon="play" onClick=${act("run", "Started.")}>Run now<//>
    ${running && html`<${Button} icon="stop" onClick=${act("stop", "Stopped.")}>Stop<//>`}
    ${job.state === "active" ? html`<${Button} icon="pause" onClick=${act("pause", "Paused.")}>Pause<//>` : html`<${Button} icon="play" onClick=${act("resume", "Resumed.")}>Resume<//>`}
    ${!job.fixed && html`<${Button} icon="edit" onClick=${onEdit}>Edit<//><${Button} kind="danger" icon="trash" label="Delete" onClick=${remove} />`}`;
}

/** @param {{id: string}} props */
function History({ id }) {
  const history = useResource(() => /** @type {Promise<{runs: JobRun[]}>} */ (get(`/v1/schedules/${encodeURIComponent(id)}/history`, { limit: 50 })), [id], ["schedule", "run"]);
  return html`<${Section} title="History"><${Loaded} resource=${history}>${(/** @type {{runs: JobRun[]}} */ { runs }) => (runs.length ? html`<${Table} caption="Runs" rows=${runs} keyOf=${(/** @type {JobRun} */ run) => run.id} columns=${[
    { name: "due", label: "Due", render: (/** @type {JobRun} */ run) => html`<${Time} value=${run.due ?? run.started} />` },
    { name: "status", label: "Status", render: (/** @type {JobRun} */ run) => html`<${Status} status=${run.status} />` },
    { name: "time", label: "Took", align: "end", render: (/** @type {JobRun} */ run) => (run.started && run.ended ? html`<span class="figure">${formatDuration(run.ended - run.started)}</span>` : html`<span class="muted">–</span>`) },
    { name: "detail", label: "Detail", render: (/** @type {JobRun} */ run) => html`${run.cause ? html`<span class="muted" dir="auto">${run.cause} </span>` : null}<${LongText} text=${run.detail} limit=${300} />` },
    { name: "session", label: "Conversation", render: (/** @type {JobRun} */ run) => (run.session ? html`<${ConversationLink} id=${run.session} title="Open" />` : html`<span class="muted">–</span>`) },
  ]} />` : html`<p class="muted">It has not run yet.</p>`)}<//><//>`;
}

/** @param {{id: string, zone: string}} props */
function Detail({ id, zone }) {
  const found = useResource(() => /** @type {Promise<Job>} */ (get(`/v1/schedules/${encodeURIComponent(id)}`)), [id], ["schedule", "run"]);
  const [editing, setEditing] = useState(false);
  const job = found.data;
  return html`<${Page} title=${job?.name ?? "Schedule"} lead=${job?.when_text} actions=${job && !editing ? html`<${JobActions} job=${job} reload=${found.reload} onEdit=${() => setEditing(true)} />` : null}>
    <${Back} href="#/schedules">All schedules<//>
    <${Loaded} resource=${found}>${(/** @type {Job} */ data) => editing
      ? html`<${JobForm} job=${data} zone=${zone} onCancel=${() => setEditing(false)} onSaved=${(/** @type {Job} */ saved) => { found.set(saved); setEditing(false); toast("Saved."); }} />`
      : html`<${Facts} facts=${[
          ["State", html`<${State} job=${data} />`], ["Time", html`<code dir="auto">${data.when}</code>`], ["Time zone", data.zone], ["After", data.after],
          ["Delivers to", data.deliver?.join(", ") || "nobody"], ["Model", data.model], ["Skills", data.skills?.join(", ")], ["Tools", data.tools?.join(", ")], ["Folder", data.folder && html`<code dir="auto">${data.folder}</code>`],
          ["Permissions", data.permission_mode], ["Budget of one run", data.budget], ["Budget of a day", data.daily_budget], ["Quiet hours", data.quiet_hours], ["Missed runs", data.missed], ["Overlap", data.overlap],
          ["Random delay", data.jitter ? formatDuration(data.jitter) : ""], ["Retries", data.retries ? String(data.retries) : ""], ["Owner", data.owner], ["Untrusted text of", data.untrusted],
          ["Set in", data.fixed ? "config.toml; here it can only be paused and run" : ""],
        ]} />
        <${Section} title=${data.script ? "Shell commands" : "Prompt"}>${data.script ? html`<${CodeBlock} text=${data.script} label="Shell commands" />` : html`<${LongText} text=${data.prompt} />`}<//>
        <${Section} title="Next times"><${NextTimes} times=${data.next} zone=${data.zone} /><//>
        <${History} id=${id} />`}<//>
  <//>`;
}

/** @param {{jobs: Job[]}} props */
function JobList({ jobs }) {
  return html`<ul class="list">${jobs.map((job) => html`<li key=${job.id}><a class="item" href=${`#/schedules/${encodeURIComponent(job.id)}`}>
    <span class="item-main"><strong><${Text} value=${job.name} /></strong><span class="muted" dir="auto">${job.when_text || job.when}</span></span>
    <span class="item-side">${job.state === "active" ? html`<span class="muted">next <${Time} value=${job.next?.[0]} /></span>` : html`<${State} job=${job} />`}
      ${job.last ? html`<${Status} status=${job.last.status} title=${job.last.detail} />` : null}</span></a></li>`)}</ul>`;
}

/** @param {{route: {params: string[], query: URLSearchParams}}} props */
export default function Screen({ route }) {
  const found = useResource(() => /** @type {Promise<{jobs: Job[], zone?: string}>} */ (get("/v1/schedules")), [], ["schedule"]);
  const [adding, setAdding] = useState(false);
  const [tab, setTab] = useState("all");
  const id = route.params[0];
  const zone = found.data?.zone || HERE;
  if (id) return html`<${Detail} key=${id} id=${id} zone=${zone} />`;
  const actions = mayChange.value && !adding ? html`<${Button} kind="primary" icon="plus" onClick=${() => setAdding(true)}>New job<//>` : null;
  return html`<${Page} title="Schedules" lead="Jobs that run at their time, whether this page is open or not." actions=${actions}>
    ${adding && html`<${JobForm} zone=${zone} onCancel=${() => setAdding(false)} onSaved=${(/** @type {Job} */ job) => { setAdding(false); found.reload(); toast("Added."); go(`#/schedules/${encodeURIComponent(job.id)}`); }} />`}
    <${Loaded} resource=${found}>${(/** @type {{jobs: Job[]}} */ { jobs }) => {
      const shown = jobs.filter((job) => tab === "all" || job.state === tab);
      if (!jobs.length) return adding ? null : html`<${Empty} icon="clock" title="No schedules">Ask in a conversation, such as “every weekday at 9, send me the news”, or add one here.<//>`;
      const count = (/** @type {string} */ state) => jobs.filter((job) => job.state === state).length;
      return html`<${Tabs} label="State" current=${tab} onChange=${setTab} tabs=${[{ id: "all", label: "All" }, { id: "active", label: "Active", count: count("active") }, { id: "paused", label: "Paused", count: count("paused") }, { id: "done", label: "Done", count: count("done") }]} />
        ${shown.length ? html`<${JobList} jobs=${shown} />` : html`<p class="muted">None.</p>`}`;
    }}<//>
  <//>`;
}
