// MCP servers: where each runs, its state and tools, and changed tools that wait to be accepted.
import { html, useState } from "../vendor/preact.js";
import { del, get, post } from "../api.js";
import { mayChange } from "../state.js";
import { Badge, Button, confirm, Dialog, Empty, Field, formatDuration, LongText, lookUp, Tabs, Text, toast } from "./controls.js";
import { Facts, Loaded, Page, textOf, useResource } from "./common.js";

/**
 * @typedef {{name: string, where?: string, state?: string, tools?: string[], why?: string, pending?: string[], changes?: string[], enabled?: boolean,
 *   source?: string, approve?: string}} Server
 */

const KINDS = /** @type {Record<string, "ok" | "warn" | "danger" | "plain">} */ ({ ready: "ok", connected: "ok", running: "ok", idle: "plain", off: "plain", disabled: "plain", failed: "danger", error: "danger", broken: "danger", starting: "warn", waiting: "warn" });

/** @typedef {{seconds: number, tools: {name: string, effect: string, description: string}[]}} Tested */

/** Names with values, one per line. @param {string} text @param {string} sign Between both. @returns {Record<string, string>} */
function parsePairs(text, sign) {
  /** @type {Record<string, string>} */
  const pairs = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const at = line.indexOf(sign);
    if (at < 1) throw new Error(`“${line.slice(0, 60)}” is not NAME${sign === ":" ? ": " : sign}VALUE.`);
    pairs[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return pairs;
}

/** @param {{onClose: () => void, onAdded: (name: string) => void}} props */
function AddDialog({ onClose, onAdded }) {
  const [kind, setKind] = useState("program");
  const [fields, setFields] = useState({ name: "", command: "", url: "", env: "", headers: "" });
  const [problem, setProblem] = useState("");
  const field = (/** @type {keyof typeof fields} */ name) => ({ value: fields[name], autocomplete: "off", spellcheck: false, onInput: (/** @type {string} */ text) => setFields({ ...fields, [name]: text }) });
  const add = async () => {
    setProblem("");
    try {
      const { name, command, url, env, headers } = fields;
      const server = kind === "program" ? { command, env: parsePairs(env, "=") } : { url: url.trim(), headers: parsePairs(headers, ":") };
      const { name: added } = await post("/v1/mcp", { name: name.trim(), ...server });
      onClose();
      onAdded(added);
    } catch (error) {
      setProblem(textOf(error));
    }
  };
  const ready = fields.name.trim() && (kind === "program" ? fields.command : fields.url).trim();
  return html`<${Dialog} title="Add an MCP server" wide onClose=${onClose}>
    <form class="stack" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <${Tabs} label="Kind of server" tabs=${[{ id: "program", label: "A program here" }, { id: "address", label: "An address" }]} current=${kind} onChange=${setKind} />
      <${Field} label="Name" autofocus ...${field("name")} placeholder="files" hint="Its tools are called by it. Letters, digits, - and _." />
      ${kind === "program" ? html`
        <${Field} label="Command" mono ...${field("command")} placeholder="npx -y @modelcontextprotocol/server-filesystem ~/notes" hint="With its arguments, as in a shell. It runs as you, in the sandbox." />
        <${Field} label="Variables" mono rows=${2} ...${field("env")} placeholder="API_KEY=…" hint="NAME=VALUE, one per line. Keys are kept in .env, and never shown." />`
      : html`<${Field} label="Address" mono type="url" ...${field("url")} placeholder="https://example.com/mcp" />
        <${Field} label="Headers" mono rows=${2} ...${field("headers")} placeholder="Authorization: Bearer …" hint="Name: value, one per line. Keys are kept in .env, and never shown." />`}
      ${problem && html`<p class="field-error" role="alert" dir="auto">${problem}</p>`}
      <div class="row"><${Button} kind="primary" type="submit" icon="plus" disabled=${!ready} onClick=${add}>Add and test<//></div>
    </form><//>`;
}

/** What a server offers, or why it cannot be used. @param {{name: string, onClose: () => void}} props */
function TestDialog({ name, onClose }) {
  const found = useResource(() => /** @type {Promise<Tested>} */ (post(`/v1/mcp/${encodeURIComponent(name)}/test`, {})), [name]);
  return html`<${Dialog} title=${`Test of ${name}`} wide onClose=${onClose}>
    ${!found.data && !found.error && html`<p class="muted" role="status">Connecting. A server that downloads itself first may take minutes.</p>`}
    <${Loaded} resource=${found}>${(/** @type {Tested} */ { seconds, tools }) => html`
      <p role="status"><strong>It works.</strong> Connected in ${formatDuration(seconds)}, ${tools.length === 1 ? "one tool" : `${tools.length} tools`}. It is used from the next turn on.</p>
      <ul class="bare">${tools.map((each) => html`<li key=${each.name}><code dir="auto">${each.name}</code> <${Badge} kind=${each.effect === "read" ? "plain" : "warn"}>${each.effect}<//> <span class="muted" dir="auto">${each.description.slice(0, 300)}</span></li>`)}</ul>`}<//><//>`;
}

/** @param {{server: Server, reload: () => Promise<void>, test: () => void}} props */
function ServerCard({ server, reload, test }) {
  const remove = async () => {
    const text = "The agent no longer uses its tools. Its entry in config.toml and its login are removed; keys stay in .env.";
    if (!(await confirm({ title: `Remove ${server.name}?`, text, action: "Remove", danger: true }))) return;
    await del(`/v1/mcp/${encodeURIComponent(server.name)}`);
    toast(`Removed ${server.name}.`);
    await reload();
  };
  const tools = server.tools ?? [];
  const pending = server.pending ?? [];
  const act = (/** @type {string} */ action, /** @type {object} */ body, /** @type {string} */ done) => async () => {
    try {
      await post(`/v1/mcp/${encodeURIComponent(server.name)}/${action}`, body);
      toast(done);
    } finally {
      await reload();
    }
  };
  const shown = server.changes?.length ? server.changes : pending;
  return html`<article class="card" aria-label=${server.name}>
    <header class="card-head"><strong><${Text} value=${server.name} /></strong><${Badge} kind=${lookUp(KINDS, server.state, "plain")}>${server.enabled === false ? "off" : server.state ?? "unknown"}<//></header>
    ${server.why ? html`<${LongText} text=${server.why} limit=${800} />` : null}
    <${Facts} facts=${[["Where", server.where && html`<code dir="auto">${server.where}</code>`], ["Named in", server.source], ["Asks before", server.approve],
      ["Tools", tools.length ? html`<span class="muted">${tools.length}: </span>${tools.slice(0, 60).join(", ")}${tools.length > 60 ? " …" : ""}` : ""]]} />
    ${pending.length ? html`<div class="stack"><p>${pending.length === 1 ? "One tool is new or has changed." : `${pending.length} tools are new or have changed.`} The agent does not use them until you accept them:</p>
      <ul class="bare">${shown.map((each) => html`<li key=${each}><${LongText} text=${each} limit=${400} /></li>`)}</ul></div>` : null}
    ${mayChange.value ? html`<div class="row">${pending.length ? html`<${Button} kind="primary" icon="check" onClick=${act("accept", { tools: pending }, "Accepted.")}>Accept these tools<//>` : null}
      <${Button} icon="play" onClick=${test}>Test<//>
      <${Button} icon="refresh" onClick=${act("reload", {}, "Connected again.")}>Connect again<//>
      <${Button} kind="danger" icon="trash" onClick=${remove}>Remove<//></div>` : null}
  </article>`;
}

/** @param {{route?: unknown}} _props */
export default function Screen(_props) {
  const [adding, setAdding] = useState(false);
  const [tested, setTested] = useState("");
  const found = useResource(() => /** @type {Promise<{servers: Server[]}>} */ (get("/v1/mcp")), [], ["plugin", "settings", "mcp"]);
  const add = mayChange.value && html`<${Button} kind="primary" icon="plus" onClick=${() => setAdding(true)}>Add a server<//>`;
  const test = (/** @type {string} */ name) => {
    setTested(name);
    found.reload();
  };
  return html`<${Page} title="MCP servers" lead="Programs and sites that give the agent more tools." actions=${add}>
    <${Loaded} resource=${found}>${(/** @type {{servers: Server[]}} */ { servers }) => (servers.length
      ? html`<div class="stack">${servers.map((each) => html`<${ServerCard} key=${each.name} server=${each} reload=${found.reload} test=${() => setTested(each.name)} />`)}</div>`
      : html`<${Empty} icon="server" title="No MCP servers">A server can give the agent files of other programs, issues, a calendar or a database.<//>`)}<//>
    ${adding && html`<${AddDialog} onClose=${() => setAdding(false)} onAdded=${test} />`}
    ${tested && html`<${TestDialog} name=${tested} onClose=${() => { setTested(""); found.reload(); }} />`}
  <//>`;
}
