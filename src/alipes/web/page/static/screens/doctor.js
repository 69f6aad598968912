// Doctor: the checks of `alipes doctor`, grouped, with what to do.
import { html, useState } from "../vendor/preact.js";
import { post } from "../api.js";
import { Badge, Button, Empty, ErrorBox, formatDuration, LongText, Spinner } from "./controls.js";
import { Page, Section } from "./common.js";

/** @typedef {{group?: string, name?: string, status: string, text?: string, fix?: string}} Check */
/** @typedef {{checks: Check[], seconds?: number}} Report */

const WORDS = /** @type {Record<string, ["ok" | "warn" | "danger", string]>} */ ({ ok: ["ok", "OK"], warn: ["warn", "warning"], error: ["danger", "problem"] });

/** @param {{report: Report}} props */
function Results({ report }) {
  /** @type {Map<string, Check[]>} */
  const groups = new Map();
  for (const check of report.checks) {
    const group = check.group || "Other";
    groups.set(group, [...(groups.get(group) ?? []), check]);
  }
  const bad = report.checks.filter((check) => check.status !== "ok").length;
  return html`<p role="status">${bad ? `${bad} of ${report.checks.length} checks need your attention.` : `All ${report.checks.length} checks passed.`} <span class="muted">${report.seconds !== undefined ? formatDuration(report.seconds) : ""}</span></p>
    <div class="doctor">${[...groups].map(([group, checks]) => html`<${Section} key=${group} title=${group}><ul class="checks">${checks.map((check, place) => {
      const [kind, word] = WORDS[check.status] ?? ["warn", check.status];
      return html`<li key=${place}><${Badge} kind=${kind}>${word}<//><div>${check.name ? html`<strong dir="auto">${check.name}</strong>` : null}<${LongText} text=${check.text} limit=${1500} />${check.fix ? html`<div class="fix" dir="auto">${check.fix}</div>` : null}</div></li>`;
    })}</ul><//>`)}</div>`;
}

/** @param {{route?: unknown}} _props */
export default function Screen(_props) {
  const [report, setReport] = useState(/** @type {Report | null} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const [busy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    setError(null);
    try {
      setReport(/** @type {Report} */ (await post("/v1/doctor", {})));
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  return html`<${Page} title="Doctor" lead="Checks settings, model, database, messengers and sandbox, and says what to do." actions=${html`<${Button} kind="primary" icon="play" busy=${busy} onClick=${run}>${report ? "Run again" : "Run the checks"}<//>`}>
    ${error ? html`<${ErrorBox} error=${error} onRetry=${run} />` : null}
    ${busy && !report ? html`<${Spinner} label="Checking" />` : report ? html`<${Results} report=${report} />` : error ? null : html`<${Empty} icon="doctor" title="Not run yet">The checks take a few seconds and change nothing.<//>`}
  <//>`;
}
