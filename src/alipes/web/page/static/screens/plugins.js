// Plugins: what each adds and asks for, its state and why, and switching it.
import { html } from "../vendor/preact.js";
import { get, post } from "../api.js";
import { mayChange } from "../state.js";
import { Badge, Button, confirm, Empty, LongText, Text, toast } from "./controls.js";
import { Command, Facts, Loaded, Page, useResource } from "./common.js";

/**
 * @typedef {{name: string, version?: string, kind?: string, state?: string, why?: string, source?: string, description?: string,
 *   adds?: Record<string, string[]>, asks?: (string | {name?: string, text?: string, granted?: boolean})[], strikes?: number, enabled?: boolean}} Plugin
 */

const KINDS = /** @type {Record<string, "ok" | "warn" | "danger" | "plain">} */ ({ on: "ok", ready: "ok", running: "ok", loaded: "ok", enabled: "ok", off: "plain", disabled: "plain", broken: "danger", failed: "danger", unavailable: "warn", waiting: "warn" });

/** @param {{plugin: Plugin, reload: () => Promise<void>}} props */
function PluginCard({ plugin, reload }) {
  const act = (/** @type {string} */ action, /** @type {string} */ done) => async () => { await post(`/v1/plugins/${encodeURIComponent(plugin.name)}/${action}`, {}); toast(done); await reload(); };
  const adds = Object.entries(plugin.adds ?? {}).filter(([, names]) => Array.isArray(names) && names.length);
  const asks = (plugin.asks ?? []).map((each) => (typeof each === "string" ? each : each.text ?? each.name ?? ""));
  const enable = async () => {
    const text = asks.length ? `It asks for:\n${asks.map((each) => `· ${each}`).join("\n")}` : "It runs its code in the agent's process.";
    if (await confirm({ title: `Enable ${plugin.name}?`, text, action: "Enable" })) await act("enable", "Enabled.")();
  };
  const enabled = plugin.enabled ?? !["off", "disabled"].includes(plugin.state ?? "");
  return html`<article class="card" aria-label=${plugin.name}>
    <header class="card-head"><span><strong><${Text} value=${plugin.name} /></strong> <span class="muted" dir="auto">${plugin.version}</span></span><${Badge} kind=${KINDS[plugin.state ?? ""] ?? "plain"}>${plugin.state ?? (enabled ? "on" : "off")}<//></header>
    ${plugin.description ? html`<${LongText} text=${plugin.description} limit=${500} />` : null}
    ${plugin.why ? html`<${LongText} text=${plugin.why} limit=${800} />` : null}
    <${Facts} facts=${[...adds.map(([what, names]) => /** @type {[string, string]} */ ([`Adds ${what}`, names.join(", ")])),
      ["Asks for", asks.length ? html`<ul class="bare">${asks.map((each) => html`<li key=${each} dir="auto">${each}</li>`)}</ul>` : ""],
      ["Kind", plugin.kind], ["Source", plugin.source && html`<code dir="auto">${plugin.source}</code>`], ["Failures", plugin.strikes ? `${plugin.strikes}; it is switched off after too many` : ""]]} />
    ${mayChange.value ? html`<div class="row">
      ${enabled ? html`<${Button} onClick=${act("disable", "Disabled.")}>Disable<//><${Button} icon="refresh" onClick=${act("reload", "Reloaded.")}>Reload<//>` : html`<${Button} kind="primary" onClick=${enable}>Enable<//>`}
      ${plugin.strikes ? html`<${Button} onClick=${act("forgive", "Its failures are forgotten.")}>Forgive failures<//>` : null}</div>` : null}
  </article>`;
}

/** @param {{route?: unknown}} _props */
export default function Screen(_props) {
  const found = useResource(() => /** @type {Promise<{plugins: Plugin[]}>} */ (get("/v1/plugins")), [], ["plugin"]);
  return html`<${Page} title="Plugins" lead="Code that adds tools, commands, hooks and messengers.">
    <${Loaded} resource=${found}>${(/** @type {{plugins: Plugin[]}} */ { plugins }) => html`${plugins.length
      ? html`<div class="stack">${plugins.map((each) => html`<${PluginCard} key=${each.name} plugin=${each} reload=${found.reload} />`)}</div>`
      : html`<${Empty} icon="plug" title="No plugins are installed" />`}
      <p class="muted small">Check a plugin's files and what it asks for in a shell: <${Command} text="alipes plugins doctor" /></p>`}<//>
  <//>`;
}
