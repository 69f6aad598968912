// People and platforms: who may write, pairing codes, the messengers' state, and messages that wait to be sent.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { del, get, patch, post } from "../api.js";
import { go } from "../router.js";
import { mayChange } from "../state.js";
import { Badge, Button, clock, confirm, Empty, Field, formatCount, formatDuration, LongText, Select, Table, Tabs, Text, Time, toast } from "./controls.js";
import { Facts, Loaded, Page, Section, Sentence, textOf, useResource } from "./common.js";

/**
 * @typedef {{id: string | number, platform: string, user?: string, name?: string, role?: string, since?: number, settings?: boolean}} Person
 * @typedef {{platform: string, user?: string, name?: string, asked?: number, expires?: number}} PairingRequest
 * @typedef {{people: Person[], requests?: PairingRequest[]}} PeopleAnswer
 * @typedef {{name: string, label?: string, configured?: boolean, ready?: boolean, why?: string, since?: number, sent?: number, received?: number, restarts?: number, home_chat?: string}} Platform
 * @typedef {{number: number, platform: string, chat?: string, text?: string, state: string, attempts?: number, due?: number, reason?: string, created?: number, files?: number, uncertain?: boolean}} OutboxMessage
 */

const ROLES = ["user", "owner"];

/** @param {{onPaired: () => Promise<void>}} props */
function PairByCode({ onPaired }) {
  const [code, setCode] = useState("");
  const [role, setRole] = useState("user");
  const [problem, setProblem] = useState("");
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setProblem("");
    if (role === "owner" && !(await confirm({ title: "Make this person an owner?", text: "Owners can approve commands, pair others and change settings.", action: "Give access as owner" }))) return;
    try {
      await post("/v1/people/pair", { code: code.trim(), role });
      setCode("");
      toast("Paired.");
      await onPaired();
    } catch (error) {
      setProblem(textOf(error));
    }
  };
  return html`<form class="inline-form" onSubmit=${submit}><${Field} label="Pairing code" mono value=${code} onInput=${setCode} error=${problem} autocomplete="off" />
    <${Select} label="Role" value=${role} options=${ROLES} onChange=${setRole} /><${Button} type="submit" disabled=${!code.trim()}>Give access<//></form>`;
}

function People() {
  const found = useResource(() => /** @type {Promise<PeopleAnswer>} */ (get("/v1/people")), [], ["person", "inbox"]);
  const path = (/** @type {Person} */ person) => `/v1/people/${encodeURIComponent(person.id)}`;
  const setRole = (/** @type {Person} */ person) => async (/** @type {string} */ role) => {
    await patch(path(person), { role });
    toast(`Role: ${role}.`);
    await found.reload();
  };
  const revoke = (/** @type {Person} */ person) => async () => {
    if (!(await confirm({ title: `Remove access of ${person.name || person.user}?`, text: "They need a new pairing code to write again.", action: "Remove access", danger: true }))) return;
    await del(path(person));
    toast("Access removed.");
    await found.reload();
  };
  return html`<${Loaded} resource=${found}>${(/** @type {PeopleAnswer} */ { people, requests = [] }) => html`
    ${requests.length ? html`<${Section} title="Asking for access" count=${requests.length}><${Table} caption="Pairing requests" rows=${requests} keyOf=${(/** @type {PairingRequest} */ row) => `${row.platform}:${row.user}`} columns=${[
      { name: "name", label: "Name", render: (/** @type {PairingRequest} */ row) => html`<strong><${Text} value=${row.name || row.user} /></strong>` },
      { name: "platform", label: "Platform", render: (/** @type {PairingRequest} */ row) => html`${row.platform} <span class="muted" dir="auto">${row.user ?? ""}</span>` },
      { name: "asked", label: "Asked", render: (/** @type {PairingRequest} */ row) => html`<${Time} value=${row.asked} />` },
      { name: "expires", label: "Code expires", render: (/** @type {PairingRequest} */ row) => html`<${Time} value=${row.expires} />` },
    ]} /><p class="muted small">Each of them was sent a pairing code. Ask for the code and enter it here.</p>${mayChange.value ? html`<${PairByCode} onPaired=${found.reload} />` : null}<//>` : null}
    ${people.length ? html`<${Section} title="People with access" count=${people.length}><${Table} caption="People with access" rows=${people} keyOf=${(/** @type {Person} */ row) => row.id} columns=${[
      { name: "name", label: "Name", render: (/** @type {Person} */ row) => html`<strong><${Text} value=${row.name || row.user} /></strong>` },
      { name: "platform", label: "Platform", render: (/** @type {Person} */ row) => html`${row.platform} <span class="muted" dir="auto">${row.user ?? ""}</span>` },
      { name: "since", label: "Since", render: (/** @type {Person} */ row) => (row.since ? html`<${Time} value=${row.since} />` : html`<span class="muted">–</span>`) },
      { name: "role", label: "Role", render: (/** @type {Person} */ row) => (mayChange.value && !row.settings ? html`<${Select} label=${`Role of ${row.name || row.user}`} hideLabel value=${row.role} options=${[...new Set([...ROLES, row.role ?? "user"])]} onChange=${setRole(row)} />` : html`<${Badge}>${row.role}<//>`) },
      ...(mayChange.value ? [{ name: "act", label: "Action", hideLabel: true, align: "end", render: (/** @type {Person} */ row) => (row.settings ? html`<span class="muted small">in config.toml</span>` : html`<${Button} small kind="danger" onClick=${revoke(row)}>Remove<//>`) }] : []),
    ]} /><//>` : html`<${Empty} icon="people" title="Nobody has access by pairing">People who message the agent get a pairing code. Enter the code here to give them access.<//>`}
    ${mayChange.value && !requests.length ? html`<${Section} title="Give access by code"><${PairByCode} onPaired=${found.reload} /><//>` : null}`}<//>`;
}

function Platforms() {
  const found = useResource(() => /** @type {Promise<{platforms: Platform[]}>} */ (get("/v1/platforms")), [], ["platform", "settings"]);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) found.reload(); // the server does not announce changes of messengers
    first.current = false;
  }, [clock.value]);
  return html`<${Loaded} resource=${found}>${(/** @type {{platforms: Platform[]}} */ { platforms }) => {
    const shown = platforms.filter((each) => each.configured !== false);
    const others = platforms.filter((each) => each.configured === false);
    return html`${shown.length ? html`<div class="stack">${shown.map((each) => html`<article key=${each.name} class="card"><header class="card-head"><strong><${Text} value=${each.label ?? each.name} /></strong>
        <${Badge} kind=${each.ready ? "ok" : "danger"}>${each.ready ? "connected" : "not connected"}<//></header>
        ${each.why ? html`<p><${Sentence} text=${each.why.slice(0, 2000)} /></p>` : null}
        <${Facts} facts=${[[each.ready ? "Connected for" : "Since", each.since ? (each.ready ? formatDuration(clock.value - each.since) : html`<${Time} value=${each.since} />`) : ""], ["Received", formatCount(each.received)], ["Sent", formatCount(each.sent)], ["Restarts", each.restarts ? formatCount(each.restarts) : ""], ["Default chat", each.home_chat]]} /></article>`)}</div>`
      : html`<${Empty} icon="chat" title="No messenger is set up" />`}
      ${others.length ? html`<${Section} title="Not set up"><ul class="bare">${others.map((each) => html`<li key=${each.name}><strong>${each.label ?? each.name}</strong> <span class="muted"><${Sentence} text=${(each.why ?? "").slice(0, 300)} /></span></li>`)}</ul><//>` : null}`;
  }}<//>`;
}

/** It was given up, and can be sent again. @param {OutboxMessage} message */
const isOver = (message) => message.state === "failed" || message.state === "expired";

function Outbox() {
  const [state, setState] = useState("unsent");
  const found = useResource(() => /** @type {Promise<{messages: OutboxMessage[], more?: boolean}>} */ (get("/v1/outbox", { state })), [state], ["outbox"]);
  const act = (/** @type {OutboxMessage} */ message, /** @type {string} */ action) => async () => {
    if (action === "drop" && !isOver(message) && !(await confirm({ title: "Drop this message?", text: "It will not be sent.", action: "Drop", danger: true }))) return;
    await post(`/v1/outbox/${message.number}/${action}`, {});
    await found.reload();
  };
  return html`<div class="controls"><${Select} label="State" value=${state} onChange=${setState} options=${[{ value: "unsent", label: "Not sent" }, ...["queued", "sending", "failed", "expired", "sent", "all"].map((value) => ({ value, label: value }))]} /></div>
    <${Loaded} resource=${found}>${(/** @type {{messages: OutboxMessage[]}} */ { messages }) => (messages.length ? html`<${Table} caption="Outgoing messages" rows=${messages} keyOf=${(/** @type {OutboxMessage} */ row) => row.number} columns=${[
      { name: "text", label: "Message", render: (/** @type {OutboxMessage} */ row) => html`<${LongText} text=${row.text} limit=${200} />${row.files ? html` <span class="muted small">${row.files === 1 ? "one file" : `${row.files} files`}</span>` : null}${row.uncertain ? html` <${Badge} kind="warn">may have arrived<//>` : null}` },
      { name: "chat", label: "To", render: (/** @type {OutboxMessage} */ row) => html`${row.platform} <span class="muted" dir="auto">${row.chat ?? ""}</span>` },
      { name: "state", label: "State", render: (/** @type {OutboxMessage} */ row) => html`<${Badge} kind=${row.state === "sent" ? "ok" : /failed|expired/.test(row.state) ? "danger" : "plain"}>${row.state}<//>${row.attempts ? html` <span class="muted small">${row.attempts} ${row.attempts === 1 ? "attempt" : "attempts"}</span>` : null}${row.reason ? html`<div class="muted small" dir="auto">${row.reason.slice(0, 400)}</div>` : null}` },
      { name: "created", label: "Made", render: (/** @type {OutboxMessage} */ row) => html`<${Time} value=${row.created} />` },
      ...(mayChange.value ? [{ name: "act", label: "Action", hideLabel: true, align: "end", render: (/** @type {OutboxMessage} */ row) => html`<span class="row end">${isOver(row) ? html`<${Button} small onClick=${act(row, "retry")}>Retry<//>` : null}${isOver(row) || row.state === "queued" ? html`<${Button} small kind="danger" onClick=${act(row, "drop")}>${isOver(row) ? "Delete" : "Drop"}<//>` : null}</span>` }] : []),
    ]} />` : html`<${Empty} icon="send" title="No messages" />`)}<//>`;
}

/** @param {{route: {params: string[], query: URLSearchParams}}} props */
export default function Screen({ route }) {
  const tab = route.params[0] ?? "people";
  return html`<${Page} title="People and platforms">
    <${Tabs} label="Lists" current=${tab} onChange=${(/** @type {string} */ next) => go(next === "people" ? "#/people" : `#/people/${next}`, { replace: true })}
      tabs=${[{ id: "people", label: "People" }, { id: "platforms", label: "Platforms" }, { id: "outbox", label: "Outbox" }]} />
    ${tab === "platforms" ? html`<${Platforms} />` : tab === "outbox" ? html`<${Outbox} />` : html`<${People} />`}
  <//>`;
}
