// Cluster: the workers that share a PostgreSQL store, waiting conversations and leaders.
import { html, useEffect } from "../vendor/preact.js";
import { get } from "../api.js";
import { Badge, Duration, Empty, Table, Text, Time } from "./controls.js";
import { Checks, codeOf, Facts, Loaded, Page, Section, useResource } from "./common.js";

/** @typedef {{id: string, host?: string, pid?: number, roles?: string[], started?: number, sessions?: number, lease_age?: number, leads?: string[]}} Worker */
/**
 * @typedef {{worker?: string, workers: Worker[], waiting?: number, oldest_waiting?: number, full?: boolean, takeovers?: Record<string, number>,
 *   vacant?: string[], writes?: {commits: number, writes: number, seconds: number, fenced: number, bus_lag: number}}} Cluster
 */

const REFRESH_MS = 2000;
const LATE_LEASE_S = 2;
const CAUSES = /** @type {Record<string, string>} */ ({ death: "process ended", lease: "lease expired" });

/** @param {number} seconds */
const milliseconds = (seconds) => `${(seconds * 1000).toFixed(1)} ms`;

/** What needs attention. @param {Cluster} cluster */
function findProblems(cluster) {
  const found = [];
  if (cluster.full) found.push({ status: "error", text: "All workers are busy: new work is refused until waiting conversations are taken.", fix: "Start more workers, or raise `cluster.capacity`." });
  for (const name of cluster.vacant ?? []) found.push({ status: "warn", text: `No worker leads ${name}.`, fix: "Start a worker with the role `listen`." });
  for (const worker of cluster.workers) {
    if ((worker.lease_age ?? 0) > LATE_LEASE_S) found.push({ status: "warn", text: `Worker ${worker.id} has not renewed its lease for ${worker.lease_age} s; others take over after 3 s.` });
  }
  if (!cluster.workers.some((worker) => worker.roles?.includes("work"))) found.push({ status: "error", text: "No worker runs turns.", fix: "Start a worker with the role `work`." });
  return found;
}

/** @param {{cluster: Cluster}} props */
function Workers({ cluster }) {
  const columns = [
    { name: "id", label: "Worker", render: (/** @type {Worker} */ row) => html`<strong><${Text} value=${row.host || "unknown host"} /></strong>${row.id === cluster.worker ? html` <${Badge} kind="accent">answers this page<//>` : null}<div class="muted">${row.id}, pid ${row.pid}</div>` },
    { name: "roles", label: "Roles", render: (/** @type {Worker} */ row) => (row.roles ?? []).join(", ") },
    { name: "leads", label: "Leads", render: (/** @type {Worker} */ row) => (row.leads ?? []).map((name) => name.replace(/^platform /, "")).join(", ") || html`<span class="muted">nothing</span>` },
    { name: "sessions", label: "Conversations", align: /** @type {"end"} */ ("end"), render: (/** @type {Worker} */ row) => html`<span class="figure">${row.sessions ?? 0}</span>` },
    { name: "lease_age", label: "Lease renewed", align: /** @type {"end"} */ ("end"), render: (/** @type {Worker} */ row) => html`<span class="figure">${(row.lease_age ?? 0).toFixed(1)} s ago</span>` },
    { name: "started", label: "Started", render: (/** @type {Worker} */ row) => html`<${Time} value=${row.started} />` },
  ];
  return html`<${Table} caption="Workers" rows=${cluster.workers} keyOf=${(/** @type {Worker} */ row) => row.id} columns=${columns} />`;
}

/** @param {{cluster: Cluster}} props */
function Figures({ cluster }) {
  const { writes } = cluster;
  const takeovers = Object.entries(cluster.takeovers ?? {}).map(([cause, count]) => `${count} (${CAUSES[cause] ?? cause})`).join(", ");
  return html`<${Section} title="Work"><${Facts} facts=${[
      ["Waiting for a worker", cluster.waiting ? html`${cluster.waiting}, the first for <${Duration} seconds=${cluster.oldest_waiting ?? 0} />` : "none"],
      ["Taken over from dead workers", takeovers],
    ]} /><//>
    ${writes ? html`<${Section} title="Database, as this worker sees it"><${Facts} facts=${[
      ["Commits", writes.commits.toLocaleString()],
      ["Time of a commit", writes.commits ? milliseconds(writes.seconds / writes.commits) : ""],
      ["Writes in a commit", writes.commits ? (writes.writes / writes.commits).toFixed(1) : ""],
      ["Late writes refused", String(writes.fenced)],
      ["Delay of notifications", milliseconds(writes.bus_lag)],
    ]} /><//>` : null}`;
}

/** @param {{route?: unknown}} _props */
export default function Screen(_props) {
  const found = useResource(() => /** @type {Promise<Cluster>} */ (get("/v1/cluster")));
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) found.reload(); }, REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  const alone = codeOf(found.error) === "no_cluster";
  return html`<${Page} title="Cluster" lead="The workers that share this PostgreSQL store.">
    ${alone ? html`<${Empty} icon="server" title="No cluster">The store is one SQLite file, which one process serves.<//>`
      : html`<${Loaded} resource=${found}>${(/** @type {Cluster} */ cluster) => {
        const problems = findProblems(cluster);
        return html`${problems.length ? html`<${Checks} checks=${problems} />` : null}
          <${Section} title="Workers" count=${cluster.workers.length}><${Workers} cluster=${cluster} /><//>
          <${Figures} cluster=${cluster} />`;
      }}<//>`}
  <//>`;
}
