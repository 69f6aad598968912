// MCP servers: where each runs, its state and tools, and changed tools that wait to be accepted.
import { html } from "../vendor/preact.js";
import { get, post } from "../api.js";
import { mayChange } from "../state.js";
import { Badge, Button, Empty, LongText, lookUp, Text, toast } from "./controls.js";
import { Command, Facts, Loaded, Page, useResource } from "./common.js";

/**
 * @typedef {{name: string, where?: string, state?: string, tools?: string[], why?: string, pending?: string[], changes?: string[], enabled?: boolean,
 *   source?: string, approve?: string}} Server
 */

const KINDS = /** @type {Record<string, "ok" | "warn" | "danger" | "plain">} */ ({ ready: "ok", connected: "ok", running: "ok", idle: "plain", off: "plain", disabled: "plain", failed: "danger", error: "danger", broken: "danger", starting: "warn", waiting: "warn" });

/** @param {{server: Server, reload: () => Promise<void>}} props */
function ServerCard({ server, reload }) {
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
      <${Button} icon="refresh" onClick=${act("reload", {}, "Connected again.")}>Connect again<//></div>` : null}
  </article>`;
}

/** @param {{route?: unknown}} _props */
export default function Screen(_props) {
  const found = useResource(() => /** @type {Promise<{servers: Server[]}>} */ (get("/v1/mcp")), [], ["plugin", "settings", "mcp"]);
  return html`<${Page} title="MCP servers" lead="Programs and sites that give the agent more tools.">
    <${Loaded} resource=${found}>${(/** @type {{servers: Server[]}} */ { servers }) => (servers.length
      ? html`<div class="stack">${servers.map((each) => html`<${ServerCard} key=${each.name} server=${each} reload=${found.reload} />`)}</div>`
      : html`<${Empty} icon="server" title="No MCP servers">Add one in a shell: <${Command} text="alipes mcp add NAME COMMAND" /><//>`)}<//>
  <//>`;
}
