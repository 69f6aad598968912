// Messages that are on their way to the server or wait for their turn.
import { html } from "../vendor/preact.js";
import { post } from "../api.js";
import { mayChange } from "../state.js";
import { Button } from "../ui.js";
import { insertion } from "./composer.js";
import { outbox } from "./outbox.js";

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
    ${queue.map((each) => html`<article key=${each.run} class="msg user waiting"><h2 class="hidden">Waiting message</h2><div class="body plain" dir="auto">${each.text}</div>
      <p class="state">${each.held ? "Held back by the stop" : "Waiting for the running task"}
        ${mayChange.value && html` · <button class="link" onClick=${() => change({ action: "drop", run: each.run })}>Drop</button>`}</p></article>`)}
    ${held && mayChange.value && html`<p class="state"><${Button} small onClick=${() => change({ action: "send" })}>Send the held messages<//></p>`}`;
}

/** @type {Record<string, string>} */
const STATES = { sending: "Sending …", waiting: "Waiting for the connection", sent: "", refused: "Not sent" };

/** @param {{messages: import("./outbox.js").Sending[]}} props */
export function OwnMessages({ messages }) {
  return messages.map((each) => html`<article key=${each.key} class=${`msg user ${each.state}`}>
    <h2 class="hidden">You</h2><div class="body plain" dir="auto">${each.text.slice(0, 30_000)}</div>
    ${STATES[each.state] && html`<p class="state" role=${each.state === "refused" ? "alert" : "status"}>${STATES[each.state]}${each.problem ? `: ${each.problem}` : ""}
      ${each.state !== "sending" && html` · <button class="link" onClick=${() => edit(each)}>Edit again</button>
        · <button class="link" onClick=${() => outbox.drop(each.key)}>Discard</button>`}</p>`}</article>`);
}

/** @param {import("./outbox.js").Sending} message */
function edit(message) {
  outbox.drop(message.key);
  insertion.value = message.text;
}
