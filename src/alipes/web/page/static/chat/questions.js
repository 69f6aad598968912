// Approvals and questions in the conversation: everything needed to decide, and all answers.
import { html, useState } from "../vendor/preact.js";
import { ApiError, post } from "../api.js";
import { mayChange } from "../state.js";
import { Button, CodeBlock, Diff, showHidden } from "../ui.js";

/** @typedef {import("./conversation.js").Question} Question */

/** @type {Record<string, string>} */
export const CHOICES = { once: "Allow once", session: "Allow in this conversation", always: "Always allow …", no: "Deny" };
export const DENY_WITH_REASON = "Deny with a reason …";

/** @param {{conversation: import("./conversation.js").Conversation}} props */
export default function Questions({ conversation }) {
  const open = conversation.questions.value;
  return open.map((each) => html`<${each.kind === "approval" ? Approval : Inquiry} key=${each.ask} question=${each} conversation=${conversation} />`);
}

/** @param {import("./conversation.js").Conversation} conversation @param {Question} question */
function useAnswer(conversation, question) {
  const [problem, setProblem] = useState("");
  /** @param {any} body */
  const answer = async (body) => {
    setProblem("");
    try {
      await post(`inbox/${question.ask}`, body);
      conversation.questions.value = conversation.questions.value.filter((each) => each.ask !== question.ask);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      setProblem(error.message);
      if (error.code === "answered") setTimeout(() => dismiss(conversation, question.ask), 4_000);
    }
  };
  return { problem, answer };
}

/** @param {import("./conversation.js").Conversation} conversation @param {string} ask */
function dismiss(conversation, ask) {
  conversation.questions.value = conversation.questions.value.filter((each) => each.ask !== ask);
}

/** @param {{question: Question, conversation: import("./conversation.js").Conversation}} props */
function Approval({ question, conversation }) {
  const { problem, answer } = useAnswer(conversation, question);
  const [more, setMore] = useState("");
  const [pattern, setPattern] = useState(question.pattern ?? "");
  const [note, setNote] = useState("");
  const answers = question.answers ?? ["once", "session", "always", "no"];
  /** @param {string} choice */
  const has = (choice) => answers.includes(choice);
  return html`<section class="question" aria-label="Approval needed">
    <h2>Approve?</h2>
    ${question.reason && html`<p dir="auto">Why: ${showHidden(question.reason.replace(/[^.]$/, "$&."))}</p>`}
    ${question.command && html`<${CodeBlock} text=${question.command} label=${question.tool ?? "Command"} />`}
    ${question.diff && html`<${Diff} text=${question.diff} />`}
    ${question.files && html`<${CodeBlock} text=${question.files} label="Files it reads" />`}
    ${question.once && html`<p>Only for this time: ${showHidden(question.once)}.</p>`}
    <p class="muted small">${[question.tool, question.workdir && `in ${showHidden(question.workdir)}`].filter(Boolean).join(" ")}
      ${question.rule && has("session") && html`<br />“Conversation” and “always” would allow: <code>${showHidden(question.rule)}</code>`}</p>
    ${mayChange.value
      ? html`<div class="answers">
          ${has("once") && html`<${Button} kind="primary" data-choice="once" onClick=${() => answer({ choice: "once" })}>${CHOICES.once}<//>`}
          ${has("session") && html`<${Button} onClick=${() => answer({ choice: "session" })}>${CHOICES.session}<//>`}
          ${has("always") && html`<${Button} aria-expanded=${more === "always"} onClick=${() => setMore(more === "always" ? "" : "always")}>${CHOICES.always}<//>`}
          ${has("no") && html`<${Button} kind="danger" data-choice="no" onClick=${() => answer({ choice: "no" })}>${CHOICES.no}<//>
            <${Button} aria-expanded=${more === "no"} onClick=${() => setMore(more === "no" ? "" : "no")}>${DENY_WITH_REASON}<//>`}
        </div>`
      : html`<p class="muted">This browser may only read.</p>`}
    ${more === "always" && html`<form class="answer-more" onSubmit=${submit(() => answer({ choice: "always", ...(pattern && { pattern }) }))}>
      ${question.pattern && html`<label>Allow commands like <input class="mono" value=${pattern} onInput=${typed(setPattern)} spellcheck=${false} /></label>
        <p class="muted small">Empty: exactly this call.</p>`}
      <${Button} kind="primary" type="submit">Always allow${pattern && question.pattern ? " this pattern" : ""}<//></form>`}
    ${more === "no" && html`<form class="answer-more" onSubmit=${submit(() => answer({ choice: "no", note }))}>
      <label>Reason, for the model <input dir="auto" value=${note} onInput=${typed(setNote)} maxlength="4000" /></label>
      <${Button} kind="danger" type="submit">Deny<//></form>`}
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
  </section>`;
}

/** @param {{question: Question, conversation: import("./conversation.js").Conversation}} props */
function Inquiry({ question, conversation }) {
  const { problem, answer } = useAnswer(conversation, question);
  const [text, setText] = useState("");
  return html`<section class="question" aria-label="Question">
    <h2 dir="auto">${question.question}</h2>
    ${mayChange.value
      ? html`<div class="answers">${(question.choices ?? []).map((choice) => html`<${Button} key=${choice} dir="auto" onClick=${() => answer({ text: choice })}>${choice}<//>`)}</div>
        <form class="answer-more row" onSubmit=${submit(() => text.trim() && answer({ text }))}>
          <input dir="auto" aria-label="Your answer" placeholder=${question.choices?.length ? "Another answer" : "Your answer"} value=${text} onInput=${typed(setText)} />
          <${Button} type="submit" kind=${question.choices?.length ? "plain" : "primary"} disabled=${!text.trim()}>Answer<//></form>`
      : html`<p class="muted">This browser may only read.</p>`}
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
  </section>`;
}

/** @param {(text: string) => void} set */
const typed = (set) => (/** @type {Event} */ event) => set(/** @type {HTMLInputElement} */ (event.currentTarget).value);

/** @param {() => unknown} act */
const submit = (act) => (/** @type {Event} */ event) => {
  event.preventDefault();
  act();
};
