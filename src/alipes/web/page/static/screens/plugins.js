// Plugins: what each adds and asks for, its state and why, and switching it.
import { html, useState } from "../vendor/preact.js";
import { del, get, post } from "../api.js";
import { mayChange } from "../state.js";
import { Badge, Button, confirm, Dialog, Empty, LongText, lookUp, Text, toast } from "./controls.js";
import { SourceDialog } from "./add_source.js";
import { Checks, Facts, Loaded, Page, Sentence, useResource } from "./common.js";

/**
 * @typedef {{name: string, version?: string, kind?: string, state?: string, why?: string, source?: string, path?: string, description?: string,
 *   adds?: Record<string, string[]>, asks?: string[], needs?: string[], strikes?: number, silenced?: Record<string, string>, enabled?: boolean}} Plugin
 * @typedef {{group?: string, status: string, text?: string, fix?: string}} Check
 */

const KINDS = /** @type {Record<string, "ok" | "danger" | "plain">} */ ({ on: "ok", off: "danger", failed: "danger", disabled: "plain" });
const WORDS = /** @type {Record<string, string>} */ ({ off: "off after failures" });

/** A list of sentences. @param {string[] | undefined} texts */
const lines = (texts) => (texts?.length ? html`<ul class="bare">${texts.map((each) => html`<li key=${each}><${Sentence} text=${each} /></li>`)}</ul>` : "");

/** What the check of a plugin's files found. @param {{name: string, onClose: () => void}} props */
function CheckDialog({ name, onClose }) {
  const found = useResource(() => /** @type {Promise<{checks: Check[]}>} */ (post(`/v1/plugins/${encodeURIComponent(name)}/doctor`, {})), [name]);
  return html`<${Dialog} title=${`Check of ${name}`} wide onClose=${onClose}><${Loaded} resource=${found}>${(/** @type {{checks: Check[]}} */ { checks }) => html`<${Checks} checks=${checks} />`}<//><//>`;
}

/** @param {{plugin: Plugin, reload: () => Promise<void>}} props */
function PluginCard({ plugin, reload }) {
  const [checking, setChecking] = useState(false);
  const act = (/** @type {string} */ action) => async () => {
    try {
      const answer = /** @type {{done?: string}} */ (await post(`/v1/plugins/${encodeURIComponent(plugin.name)}/${action}`, {}));
      toast(answer?.done || "Done.");
    } finally {
      await reload();
    }
  };
  const adds = Object.entries(plugin.adds ?? {}).filter(([, names]) => Array.isArray(names) && names.length);
  const asks = plugin.asks ?? [];
  const enable = async () => {
    const text = asks.length ? `Its code uses:\n${asks.map((each) => `· ${each}`).join("\n")}\nThis was read from the code, which may do more.` : "Its code runs in the agent's process.";
    if (await confirm({ title: `Enable ${plugin.name}?`, text, action: "Enable" })) await act("enable")();
  };
  const remove = async () => {
    const text = "It is disabled and its folder is deleted. What it has stored stays.";
    if (!(await confirm({ title: `Remove ${plugin.name}?`, text, action: "Remove", danger: true }))) return;
    await del(`/v1/plugins/${encodeURIComponent(plugin.name)}`);
    toast(`Removed ${plugin.name}.`);
    await reload();
  };
  const enabled = plugin.enabled ?? plugin.state !== "disabled";
  return html`<article class="card" aria-label=${plugin.name}>
    <header class="card-head"><span><strong><${Text} value=${plugin.name} /></strong> <span class="muted" dir="auto">${plugin.version}</span></span><${Badge} kind=${lookUp(KINDS, plugin.state, "plain")}>${lookUp(WORDS, plugin.state, plugin.state)}<//></header>
    ${plugin.description ? html`<${LongText} text=${plugin.description} limit=${500} />` : null}
    ${plugin.why ? html`<p class=${plugin.state === "disabled" ? "muted" : "field-error"}><${Sentence} text=${plugin.why.slice(0, 1500)} /></p>` : null}
    <${Facts} facts=${[...adds.map(([what, names]) => /** @type {[string, string]} */ ([`Adds ${what}`, names.join(", ")])),
      ["Its code uses", lines(asks)], ["Needs", lines(plugin.needs)], ["Kind", plugin.kind], ["Source", plugin.source], ["Path", plugin.path && html`<code dir="auto">${plugin.path}</code>`],
      ["Failures", plugin.strikes ? String(plugin.strikes) : ""], ["Silenced", lines(Object.entries(plugin.silenced ?? {}).map(([name, why]) => `${name}: ${why}`))]]} />
    ${mayChange.value ? html`<div class="row">
      ${enabled ? html`<${Button} onClick=${act("disable")}>Disable<//><${Button} icon="refresh" onClick=${act("reload")}>Reload<//>` : html`<${Button} kind="primary" onClick=${enable}>Enable<//>`}
      ${plugin.strikes || plugin.state === "off" || Object.keys(plugin.silenced ?? {}).length ? html`<${Button} onClick=${act("forgive")}>Reset failures<//>` : null}
      <${Button} kind="quiet" onClick=${() => setChecking(true)}>Check its files<//>
      <${Button} kind="danger" icon="trash" onClick=${remove}>Remove<//></div>` : null}
    ${checking && html`<${CheckDialog} name=${plugin.name} onClose=${() => setChecking(false)} />`}
  </article>`;
}

/** @param {{route?: unknown}} _props */
export default function Screen(_props) {
  const [adding, setAdding] = useState(false);
  const found = useResource(() => /** @type {Promise<{plugins: Plugin[], safe?: boolean}>} */ (get("/v1/plugins")), [], ["plugin"]);
  return html`<${Page} title="Plugins" lead="Code that adds tools, commands, hooks and messengers."
    actions=${mayChange.value && html`<${Button} kind="primary" icon="plus" onClick=${() => setAdding(true)}>Add a plugin<//>`}>
    <${Loaded} resource=${found}>${(/** @type {{plugins: Plugin[], safe?: boolean}} */ { plugins, safe }) => html`${safe ? html`<p class="notice">Plugins are off: the server was started with --safe.</p>` : null}${plugins.length
      ? html`<div class="stack">${plugins.map((each) => html`<${PluginCard} key=${each.name} plugin=${each} reload=${found.reload} />`)}</div>`
      : html`<${Empty} icon="plug" title="No plugins are installed" />`}`}<//>
    ${adding && html`<${SourceDialog} title="Add a plugin" onClose=${() => setAdding(false)} action="Install and enable"
      hint="A folder on this server, the address of a Git repository or archive, owner/name on GitHub, or a package."
      warning="This was read from its code, which did not run. An enabled plugin has all your permissions."
      look=${async (/** @type {string} */ source) => [await post("/v1/plugins/look", { source })]}
      install=${async (/** @type {string} */ source, /** @type {import("./add_source.js").Offer} */ { name, sha256 }) => {
        await post("/v1/plugins", { source, sha256 });
        try {
          toast((await post(`/v1/plugins/${encodeURIComponent(name)}/enable`, {})).done);
        } finally {
          await found.reload();
        }
      }} />`}
  <//>`;
}
