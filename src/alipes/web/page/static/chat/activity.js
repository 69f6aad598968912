// What happens beside the messages: plan, subagents, background processes.
import { html } from "../vendor/preact.js";
import { post } from "../api.js";
import { href } from "../router.js";
import { mayChange } from "../state.js";
import { Button, CodeBlock, Time } from "../ui.js";

/** @type {Record<string, string>} */
const MARKS = { completed: "✓", done: "✓", in_progress: "▸", cancelled: "✕" };

/** @param {{conversation: import("./conversation.js").Conversation}} props */
export default function Activity({ conversation }) {
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
