// What happens beside the messages: plan, subagents, background processes, queued messages.
import { html } from "../vendor/preact.js";
import { post } from "../api.js";
import { href } from "../router.js";
import { mayChange } from "../state.js";
import { Button, CodeBlock, Time } from "../ui.js";
import { insertion } from "./composer.js";
import { outbox } from "./outbox.js";

/** @type {Record<string, string>} */
const MARKS = { completed: "✓", done: "✓", in_progress: "▸", cancelled: "✕" };

/** @param {{conversation: import("./conversation.js").Conversation}} props */
export function Activity({ conversation }) {
  const { todos = [], subagents = [], processes = [] } = conversation.activity.value;
  const done = todos.filter((each) => MARKS[each.status] === "✓").length;
  const current = todos.find((each) => each.status === "in_progress");
  const words = [
    todos.length ? `Plan ${done} of ${todos.length}${current ? `: ${current.text}` : ""}` : "",
    subagents.length ? count(subagents.length, "subagent") : "",
    processes.length ? count(processes.length, "background process", "background processes") : "",
  ].filter(Boolean);
  if (!words.length) return null;
  /** @param {string} path */
  const act = async (path) => {
    await post(path);
    await conversation.update();
  };
  return html`<details class="activity"><summary dir="auto">${words.join(" · ")}</summary>
    ${todos.length > 0 && html`<ul class="todos" aria-label="Plan">${todos.map((each) => html`<li key=${each.id ?? each.text} class=${each.status}>
      <span class="mark" aria-hidden="true">${MARKS[each.status] ?? "○"}</span><span dir="auto">${each.text}</span><span class="hidden">, ${each.status.replace("_", " ")}</span></li>`)}</ul>`}
    ${subagents.length > 0 && html`<ul class="jobs" aria-label="Subagents">${subagents.map((each) => html`<li key=${each.run}>
      <a href=${href("c", each.session)} dir="auto">${each.goal || "Subagent"}</a> <span class="muted small">${each.status} <${Time} value=${each.started} /></span>
      ${mayChange.value && /running|queued|waiting/.test(each.status) && html`<${Button} small onClick=${() => act(`runs/${each.run}/stop`)}>Stop<//>`}</li>`)}</ul>`}
    ${processes.length > 0 && html`<ul class="jobs" aria-label="Background processes">${processes.map((each) => html`<li key=${each.name}>
      <details><summary><code>${each.command}</code> <span class="muted small">${each.name} · ${each.status}</span></summary>
        <${CodeBlock} text=${each.output || "(no output)"} label="Output" /></details>
      ${mayChange.value && each.status === "running" && html`<${Button} small onClick=${() => act(`sessions/${conversation.id}/processes/${encodeURIComponent(each.name)}/stop`)}>Stop<//>`}</li>`)}</ul>`}
  </details>`;
}

/** @param {number} number @param {string} one @param {string} [many] */
function count(number, one, many = `${one}s`) {
  return `${number} ${number === 1 ? one : many}`;
}

/** Messages that are on their way or wait for their turn. @param {{conversation: import("./conversation.js").Conversation}} props */
export function Waiting({ conversation }) {
  const queue = conversation.activity.value.queue ?? [];
  const queued = new Set(queue.map((each) => each.run));
  const own = outbox.messages.value.filter((each) => each.session === conversation.id && !(each.run && queued.has(each.run)));
  const held = queue.some((each) => each.held);
  /** @param {any} body */
  const change = async (body) => {
    await post(`sessions/${conversation.id}/queue`, body);
    await conversation.update();
  };
  return html`<${OwnMessages} messages=${own} />
    ${queue.map((each) => html`<article key=${each.run} class="msg user waiting"><h3 class="hidden">Waiting message</h3><div class="body plain" dir="auto">${each.text}</div>
      <p class="state">${each.held ? "Held back by the stop" : "Waiting for the running task"}
        ${mayChange.value && html` · <button class="link" onClick=${() => change({ action: "drop", run: each.run })}>Drop</button>`}</p></article>`)}
    ${held && mayChange.value && html`<p class="state"><${Button} small onClick=${() => change({ action: "send" })}>Send the held messages<//></p>`}`;
}

/** @type {Record<string, string>} */
const STATES = { sending: "Sending …", waiting: "Waiting for the connection", sent: "", refused: "Not sent" };

/** @param {{messages: import("./outbox.js").Sending[]}} props */
export function OwnMessages({ messages }) {
  return messages.map((each) => html`<article key=${each.key} class=${`msg user ${each.state}`}>
    <h3 class="hidden">You</h3><div class="body plain" dir="auto">${each.text.slice(0, 30_000)}</div>
    ${STATES[each.state] && html`<p class="state" role=${each.state === "refused" ? "alert" : "status"}>${STATES[each.state]}${each.problem ? `: ${each.problem}` : ""}
      ${each.state !== "sending" && html` · <button class="link" onClick=${() => edit(each)}>Edit again</button>
        · <button class="link" onClick=${() => outbox.drop(each.key)}>Discard</button>`}</p>`}</article>`);
}

/** @param {import("./outbox.js").Sending} message */
function edit(message) {
  outbox.drop(message.key);
  insertion.value = message.text;
}
