// People and platforms: who may write, pairing codes, the messengers' state, and messages that wait to be sent.
import { html, useState } from "../vendor/preact.js";
import { del, get, patch, post } from "../api.js";
import { go } from "../router.js";
import { mayChange } from "../state.js";
import { Badge, Button, confirm, Empty, Field, formatCount, formatDuration, LongText, Select, Table, Tabs, Text, Time, toast, clock } from "../ui.js";
import { Facts, Loaded, Page, Section, textOf, useResource } from "./common.js";

/**
 * @typedef {{id: string | number, platform: string, user?: string, name?: string, role?: string, since?: number, chats?: (string | {name?: string, id?: string})[] | number, fixed?: boolean}} Person
 * @typedef {{code: string, platform: string, user?: string, name?: string, asked?: number, expires?: number}} PairingRequest
 * @typedef {{people: Person[], requests?: PairingRequest[]}} PeopleAnswer
 * @typedef {{name: string, label?: string, configured?: boolean, ready?: boolean, why?: string, since?: number, sent?: number, received?: number, restarts?: number, home_chat?: string}} Platform
 * @typedef {{number: number, platform: string, chat?: string, text?: string, state: string, attempts?: number, due?: number, reason?: string, created?: number}} OutboxMessage
 */

const ROLES = ["user", "owner"];

/** @param {{request: PairingRequest, reload: () => Promise<void>}} props */
function RequestCard({ request, reload }) {
  const [role, setRole] = useState("user");
  const pair = async () => {
    if (role === "owner" && !(await confirm({ title: "Make this person an owner?", text: "Owners can approve commands, pair others and change settings.", action: "Pair as owner" }))) return;
    await post("/v1/people/pair", { code: request.code, role });
    toast(`${request.name || request.user} now has access on ${request.platform}.`);
    await reload();
  };
  return html`<article class="card"><header class="card-head"><strong><${Text} value=${request.name || request.user} /></strong><span class="muted small">asked <${Time} value=${request.asked} /></span></header>
    <${Facts} facts=${[["Platform", request.platform], ["User", request.user], ["Code", html`<code dir="auto">${request.code}</code>`], ["Expires", html`<${Time} value=${request.expires} />`]]} />
    ${mayChange.value ? html`<div class="row"><${Select} label="Role" hideLabel value=${role} options=${ROLES} onChange=${setRole} /><${Button} kind="primary" onClick=${pair}>Give access<//></div>` : null}</article>`;
}

/** @param {{onPaired: () => Promise<void>}} props */
function PairByCode({ onPaired }) {
  const [code, setCode] = useState("");
  const [role, setRole] = useState("user");
  const [problem, setProblem] = useState("");
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setProblem("");
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
  const chats = (/** @type {Person} */ person) => (Array.isArray(person.chats) ? person.chats.map((each) => (typeof each === "string" ? each : each.name ?? each.id ?? "")).join(", ") : person.chats ? formatCount(person.chats) : "");
  return html`<${Loaded} resource=${found}>${(/** @type {PeopleAnswer} */ { people, requests = [] }) => html`
    ${requests.length ? html`<${Section} title="Asking for access" count=${requests.length}><div class="stack">${requests.map((each) => html`<${RequestCard} key=${each.code} request=${each} reload=${found.reload} />`)}</div><//>` : null}
    ${people.length ? html`<${Table} caption="People with access" rows=${people} keyOf=${(/** @type {Person} */ row) => row.id} columns=${[
      { name: "name", label: "Name", render: (/** @type {Person} */ row) => html`<strong><${Text} value=${row.name || row.user} /></strong>` },
      { name: "platform", label: "Platform", render: (/** @type {Person} */ row) => html`${row.platform} <span class="muted" dir="auto">${row.user ?? ""}</span>` },
      { name: "chats", label: "Chats", render: (/** @type {Person} */ row) => html`<span class="muted" dir="auto">${chats(row) || "–"}</span>` },
      { name: "since", label: "Since", render: (/** @type {Person} */ row) => html`<${Time} value=${row.since} />` },
      { name: "role", label: "Role", render: (/** @type {Person} */ row) => (mayChange.value && !row.fixed ? html`<${Select} label=${`Role of ${row.name || row.user}`} hideLabel value=${row.role} options=${[...new Set([...ROLES, row.role ?? "user"])]} onChange=${setRole(row)} />` : html`<${Badge}>${row.role}<//>`) },
      ...(mayChange.value ? [{ name: "act", label: "Action", hideLabel: true, align: "end", render: (/** @type {Person} */ row) => (row.fixed ? html`<span class="muted small">set in config.toml</span>` : html`<${Button} small kind="danger" onClick=${revoke(row)}>Remove<//>`) }] : []),
    ]} />` : html`<${Empty} icon="people" title="Nobody has access by pairing">Who writes to the agent on a messenger gets a pairing code. It appears here, and you give access.<//>`}
    ${mayChange.value ? html`<${Section} title="Give access by code"><${PairByCode} onPaired=${found.reload} /><//>` : null}`}<//>`;
}

function Platforms() {
  const found = useResource(() => /** @type {Promise<{platforms: Platform[]}>} */ (get("/v1/platforms")), [], ["platform", "settings"]);
  return html`<${Loaded} resource=${found}>${(/** @type {{platforms: Platform[]}} */ { platforms }) => {
    const shown = platforms.filter((each) => each.configured !== false);
    const others = platforms.filter((each) => each.configured === false);
    return html`${shown.length ? html`<div class="stack">${shown.map((each) => html`<article key=${each.name} class="card"><header class="card-head"><strong><${Text} value=${each.label ?? each.name} /></strong>
        <${Badge} kind=${each.ready ? "ok" : "danger"}>${each.ready ? "connected" : "not connected"}<//></header>
        ${each.why ? html`<${LongText} text=${each.why} limit=${800} />` : null}
        <${Facts} facts=${[[each.ready ? "Connected for" : "Since", each.since ? (each.ready ? formatDuration(clock.value - each.since) : html`<${Time} value=${each.since} />`) : ""], ["Received", formatCount(each.received)], ["Sent", formatCount(each.sent)], ["Restarts", each.restarts ? formatCount(each.restarts) : ""], ["Default chat", each.home_chat]]} /></article>`)}</div>`
      : html`<${Empty} icon="chat" title="No messenger is set up" />`}
      ${others.length ? html`<${Section} title="Not set up"><ul class="plain">${others.map((each) => html`<li key=${each.name}><strong>${each.label ?? each.name}</strong> <span class="muted" dir="auto">${(each.why ?? "").slice(0, 300)}</span></li>`)}</ul><//>` : null}`;
  }}<//>`;
}

function Outbox() {
  const [state, setState] = useState("");
  const found = useResource(() => /** @type {Promise<{messages: OutboxMessage[], more?: boolean}>} */ (get("/v1/outbox", { state })), [state], ["outbox"]);
  const act = (/** @type {OutboxMessage} */ message, /** @type {string} */ action) => async () => {
    if (action === "drop" && !(await confirm({ title: "Drop this message?", text: "It will not be sent.", action: "Drop", danger: true }))) return;
    await post(`/v1/outbox/${message.number}/${action}`, {});
    await found.reload();
  };
  return html`<div class="controls"><${Select} label="State" value=${state} onChange=${setState} options=${[{ value: "", label: "All" }, { value: "waiting", label: "Waiting" }, { value: "failed", label: "Failed" }, { value: "sent", label: "Sent" }]} /></div>
    <${Loaded} resource=${found}>${(/** @type {{messages: OutboxMessage[]}} */ { messages }) => (messages.length ? html`<${Table} caption="Outgoing messages" rows=${messages} keyOf=${(/** @type {OutboxMessage} */ row) => row.number} columns=${[
      { name: "text", label: "Message", render: (/** @type {OutboxMessage} */ row) => html`<${LongText} text=${row.text} limit=${200} />` },
      { name: "chat", label: "To", render: (/** @type {OutboxMessage} */ row) => html`${row.platform} <span class="muted" dir="auto">${row.chat ?? ""}</span>` },
      { name: "state", label: "State", render: (/** @type {OutboxMessage} */ row) => html`<${Badge} kind=${row.state === "sent" ? "ok" : /fail|drop|dead|undeliverable/.test(row.state) ? "danger" : "plain"}>${row.state}<//>${row.attempts ? html` <span class="muted small">${row.attempts} ${row.attempts === 1 ? "attempt" : "attempts"}</span>` : null}${row.reason ? html`<div class="muted small" dir="auto">${row.reason.slice(0, 400)}</div>` : null}` },
      { name: "created", label: "Made", render: (/** @type {OutboxMessage} */ row) => html`<${Time} value=${row.created} />` },
      ...(mayChange.value ? [{ name: "act", label: "Action", hideLabel: true, align: "end", render: (/** @type {OutboxMessage} */ row) => (row.state === "sent" ? null : html`<span class="row end"><${Button} small onClick=${act(row, "retry")}>Retry<//><${Button} small kind="danger" onClick=${act(row, "drop")}>Drop<//></span>`) }] : []),
    ]} />` : html`<${Empty} icon="send" title="No messages" />`)}<//>`;
}

/** @param {{route: {params: string[], query: URLSearchParams}}} props */
export default function Screen({ route }) {
  const tab = route.params[0] ?? "people";
  return html`<${Page} title="People and platforms" wide>
    <${Tabs} label="Lists" current=${tab} onChange=${(/** @type {string} */ next) => go(next === "people" ? "#/people" : `#/people/${next}`, { replace: true })}
      tabs=${[{ id: "people", label: "People" }, { id: "platforms", label: "Platforms" }, { id: "outbox", label: "Outbox" }]} />
    ${tab === "platforms" ? html`<${Platforms} />` : tab === "outbox" ? html`<${Outbox} />` : html`<${People} />`}
  <//>`;
}
