// Doctor: the checks of `alipes doctor`, grouped, with what to do.
import { html, useState } from "../vendor/preact.js";
import { post } from "../api.js";
import { mayChange } from "../state.js";
import { Button, Empty, ErrorBox, formatDuration, Spinner, Toggle } from "./controls.js";
import { Checks, Page, Section } from "./common.js";

/** @typedef {{group?: string, name?: string, status: string, text?: string, fix?: string}} Check */
/** @typedef {{checks: Check[], seconds?: number}} Report */

/** @param {{report: Report}} props */
function Results({ report }) {
  /** @type {Map<string, Check[]>} */
  const groups = new Map();
  for (const check of report.checks) {
    const group = check.group || "Other";
    groups.set(group, [...(groups.get(group) ?? []), check]);
  }
  const isFine = (/** @type {Check} */ check) => check.status === "ok";
  const sorted = [...groups].sort(([, one], [, two]) => Number(one.every(isFine)) - Number(two.every(isFine)));
  const bad = report.checks.filter((check) => !isFine(check)).length;
  return html`<p role="status">${bad ? `${bad} of ${report.checks.length} checks need your attention.` : `All ${report.checks.length} checks passed.`} <span class="muted">${report.seconds !== undefined ? formatDuration(report.seconds) : ""}</span></p>
    <div class="doctor">${sorted.map(([group, checks]) => html`<${Section} key=${group} title=${group}><${Checks} checks=${checks} /><//>`)}</div>`;
}

/** @param {{route?: unknown}} _props */
export default function Screen(_props) {
  const [report, setReport] = useState(/** @type {Report | null} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const [busy, setBusy] = useState(false);
  const [live, setLive] = useState(true);
  const run = async () => {
    setBusy(true);
    setError(null);
    try {
      setReport(/** @type {Report} */ (await post("/v1/doctor", { live })));
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  return html`<${Page} title="Doctor" lead="Checks settings, model, database, messengers and sandbox, and says what to do." actions=${mayChange.value && html`<${Button} kind="primary" icon="play" busy=${busy} onClick=${run}>${report ? "Run again" : "Run the checks"}<//>`}>
    ${mayChange.value ? html`<p><${Toggle} label="Also ask the model, which costs a few tokens" checked=${live} onChange=${setLive} /></p>` : html`<p class="muted">This browser may only read, so it cannot run the checks.</p>`}
    ${error ? html`<${ErrorBox} error=${error} onRetry=${run} />` : null}
    ${busy && !report ? html`<${Spinner} label="Checking" />` : report ? html`<${Results} report=${report} />` : error ? null : html`<${Empty} icon="doctor" title="Not run yet">The checks take a few seconds and change nothing.<//>`}
  <//>`;
}
