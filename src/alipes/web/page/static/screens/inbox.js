// Inbox: every open approval and question of every surface, answered once.
import { html, useRef, useState } from "../vendor/preact.js";
import { get, post } from "../api.js";
import { mayChange } from "../state.js";
import { CHOICES, DENY_WITH_REASON } from "../chat/questions.js";
import { Badge, Button, CodeBlock, Diff, Empty, Field, LongText, lookUp, Text, Time, toast } from "./controls.js";
import { codeOf, ConversationLink, Facts, Loaded, Page, statusOf, textOf, useResource } from "./common.js";

/**
 * @typedef {{ask: string, kind: string, run?: string, session?: string, title?: string, origin?: string, created?: number, until?: number,
 *   tool?: string, command?: string, reason?: string, rule?: string, workdir?: string, diff?: string, pattern?: string, question?: string,
 *   files?: string, once?: string,
 *   choices?: string[], answers?: string[]}} Question
 * @typedef {{questions: Question[], proposals?: number, pairing?: number}} InboxAnswer
 */


/** The answers to a command: buttons, an editable pattern for "always" and a note for "no". @param {{question: Question, answer: (body: object) => Promise<void>}} props */
function ApprovalAnswers({ question, answer }) {
  const [open, setOpen] = useState("");
  const [pattern, setPattern] = useState(question.pattern ?? "");
  const [note, setNote] = useState("");
  const answers = question.answers ?? ["once", "session", "no"];
  const submit = (/** @type {object} */ body) => (/** @type {Event} */ event) => { event.preventDefault(); return answer(body); };
  return html`<div class="row">
      ${answers.filter((each) => lookUp(CHOICES, each, "")).map((each) => html`<${Button} key=${each} kind=${each === "once" ? "primary" : each === "no" ? "danger" : "plain"}
        aria-expanded=${each === "always" ? String(open === "always") : undefined}
        onClick=${() => (each === "always" ? setOpen(open === "always" ? "" : "always") : answer({ choice: each }))}>${CHOICES[each]}<//>`)}
      ${answers.includes("no") && html`<${Button} aria-expanded=${String(open === "note")} onClick=${() => setOpen(open === "note" ? "" : "note")}>${DENY_WITH_REASON}<//>`}
    </div>
    ${open === "always" && html`<form class="answer-form" onSubmit=${submit({ choice: "always", ...(pattern.trim() ? { pattern: pattern.trim() } : {}) })}>
      <${Field} label="Always allow commands that match" mono value=${pattern} onInput=${setPattern} autofocus
        hint=${html`* matches any text. Empty: only ${question.rule ? html`<bdi dir="auto">${question.rule.slice(0, 300)}</bdi>` : "exactly this call"}.`} />
      <${Button} kind="primary" type="submit">Always allow<//></form>`}
    ${open === "note" && html`<form class="answer-form" onSubmit=${submit({ choice: "no", note })}>
      <${Field} label="Reason, for the model" rows=${2} value=${note} onInput=${setNote} autofocus />
      <${Button} kind="danger" type="submit">Deny<//></form>`}`;
}

/** The answers to a question of the agent: its choices and a text of your own. @param {{question: Question, answer: (body: object) => Promise<void>}} props */
function QuestionAnswers({ question, answer }) {
  const [text, setText] = useState("");
  const submit = (/** @type {Event} */ event) => { event.preventDefault(); if (text.trim()) answer({ text }); };
  return html`${question.choices?.length ? html`<div class="row">${question.choices.map((choice) => html`<${Button} key=${choice} onClick=${() => answer({ text: choice })}><${Text} value=${choice} /><//>`)}</div>` : null}
    <form class="answer-form" onSubmit=${submit}><${Field} label="Your answer" rows=${2} value=${text} onInput=${setText} />
      <${Button} kind="primary" type="submit" disabled=${!text.trim()}>Answer<//></form>`;
}

/** One open question with everything that is needed to decide. @param {{question: Question, onDone: (ask: string) => void}} props */
export function QuestionCard({ question, onDone }) {
  const [error, setError] = useState("");
  const answer = async (/** @type {object} */ body) => {
    setError("");
    try {
      await post(`/v1/inbox/${encodeURIComponent(question.ask)}`, body);
      onDone(question.ask);
    } catch (problem) {
      setError(textOf(problem));
      if (codeOf(problem) === "answered" || statusOf(problem) === 404) toast(textOf(problem));
    }
  };
  const approval = question.kind === "approval";
  return html`<article class="card" aria-label=${approval ? "Approval" : "Question"}>
    <header class="card-head">
      <strong>${approval ? html`Approve ${question.tool ? html`<code dir="auto">${question.tool}</code>` : "this action"}?` : "Question"}</strong>
      <span class="muted small"><${Time} value=${question.created} /></span>
    </header>
    ${question.reason ? html`<p class="muted" dir="auto">${question.reason}</p>` : null}
    ${question.question ? html`<${LongText} text=${question.question} />` : null}
    ${question.command ? html`<${CodeBlock} text=${question.command} label="Command" />` : null}
    ${question.diff ? html`<${Diff} text=${question.diff} />` : null}
    ${question.files ? html`<${CodeBlock} text=${question.files} label="Files it reads" />` : null}
    ${question.once ? html`<p>Only for this time: <bdi dir="auto">${question.once}</bdi>.</p>` : null}
    <${Facts} facts=${[
      ["From", html`${question.origin ? html`<${Badge}>${question.origin}<//> ` : null}<${ConversationLink} id=${question.session} title=${question.title} />`],
      ["Folder", question.workdir && html`<code dir="auto">${question.workdir}</code>`],
      ["Always covers", question.rule],
      ["Expires", question.until ? html`<${Time} value=${question.until} />` : null],
    ]} />
    ${error && html`<p class="field-error" role="alert" dir="auto">${error}</p>`}
    ${mayChange.value ? (approval ? html`<${ApprovalAnswers} question=${question} answer=${answer} />` : html`<${QuestionAnswers} question=${question} answer=${answer} />`)
      : html`<p class="muted">This browser may only read. Answer from another device.</p>`}
  </article>`;
}

/** @param {{route?: unknown}} _props */
export default function Screen(_props) {
  const inbox = useResource(() => /** @type {Promise<InboxAnswer>} */ (get("/v1/inbox")), [], ["inbox", "skill", "memory", "person"]);
  const seen = useRef(/** @type {Map<string, Question>} */ (new Map()));
  const mine = useRef(/** @type {Set<string>} */ (new Set()));
  const [, redraw] = useState(0);
  const done = (/** @type {string} */ ask) => { mine.current.add(ask); inbox.reload(); };
  return html`<${Page} title="Inbox" lead="Open questions of every conversation. The first answer counts, wherever it is given.">
    <${Loaded} resource=${inbox}>${(/** @type {InboxAnswer} */ data) => {
      const open = (data.questions ?? []).filter((each) => !mine.current.has(each.ask));
      const now = new Set((data.questions ?? []).map((each) => each.ask));
      for (const each of open) seen.current.set(each.ask, each);
      const gone = [...seen.current.values()].filter((each) => !now.has(each.ask) && !mine.current.has(each.ask));
      const links = [
        data.proposals ? html`<a key="skills" class="notice" href="#/skills?tab=pending">${data.proposals} proposed ${data.proposals === 1 ? "change" : "changes"} to skills and memory</a>` : null,
        data.pairing ? html`<a key="people" class="notice" href="#/people">${data.pairing} pairing ${data.pairing === 1 ? "request" : "requests"}</a>` : null,
      ].filter(Boolean);
      return html`<div class="stack">
        ${links}
        ${open.map((each) => html`<${QuestionCard} key=${each.ask} question=${each} onDone=${done} />`)}
        ${gone.map((each) => html`<div key=${each.ask} class="resolved" role="status"><span class="muted">Answered elsewhere or expired: <${Text} value=${(each.command || each.question || each.tool || "").slice(0, 200)} /></span>
          <${Button} kind="quiet" small icon="close" label="Dismiss" onClick=${() => { seen.current.delete(each.ask); redraw((n) => n + 1); }} /></div>`)}
        ${!open.length && !links.length ? html`<${Empty} icon="inbox" title="No open questions">Approvals and questions appear here as soon as they are asked.<//>` : null}
      </div>`;
    }}<//>
  <//>`;
}
