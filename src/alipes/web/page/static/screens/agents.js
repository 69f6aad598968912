// Other agents: which are configured, which run, and which can be added.
import { html } from "../vendor/preact.js";
import { get } from "../api.js";
import { Badge, Empty, Text } from "./controls.js";
import { Command, Facts, Loaded, Page, useResource } from "./common.js";

/**
 * @typedef {{name: string, model: string, title?: string, command?: string, installed?: boolean, install?: string, mode?: string, running?: number}} Agent
 * @typedef {{name: string, title: string, package: string, install: string}} Known
 */

/** @param {{agent: Agent}} props */
function AgentCard({ agent }) {
  const state = agent.running ? `running (${agent.running})` : agent.installed ? "ready" : "not installed";
  return html`<article class="card" aria-label=${agent.name}>
    <header class="card-head"><strong><${Text} value=${agent.title || agent.name} /></strong><${Badge} kind=${agent.running ? "ok" : agent.installed ? "plain" : "danger"}>${state}<//></header>
    <${Facts} facts=${[["Model", html`<code>${agent.model}</code>`], ["Command", agent.command && html`<code dir="auto">${agent.command}</code>`], ["Mode", agent.mode],
      ["Install", !agent.installed && agent.install ? html`<${Command} text=${agent.install} />` : ""], ["Log in", html`<${Command} text=${`alipes agents login ${agent.name}`} />`]]} />
  </article>`;
}

/** @param {{route?: unknown}} _props */
export default function Screen(_props) {
  const found = useResource(() => /** @type {Promise<{agents: Agent[], known: Known[], checked: string}>} */ (get("/v1/agents")), [], ["settings"]);
  return html`<${Page} title="Other agents" lead="Programs such as Claude Code or Codex, as models and as subagents. Choose one as the model of a conversation.">
    <${Loaded} resource=${found}>${(/** @type {{agents: Agent[], known: Known[], checked: string}} */ { agents, known, checked }) => html`<div class="stack">
      ${agents.length ? agents.map((each) => html`<${AgentCard} key=${each.name} agent=${each} />`) : html`<${Empty} icon="people" title="No other agents">Add one in a shell: <${Command} text="alipes agents add NAME" /><//>`}
      ${known.length ? html`<p class="muted">Known, as of ${checked}: ${known.map((each) => `${each.name} (${each.title})`).join(", ")}.</p>` : null}
    </div>`}<//>
  <//>`;
}
