// Usage: cost or tokens per day, stacked; cache share; limits; the same figures as a table and as CSV.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { download, get } from "../api.js";
import { Button, Empty, Field, formatCount, formatMoney, formatShort, loadStyle, Select, Table, Tabs } from "./controls.js";
import { ConversationLink, Loaded, Page, Section, useResource } from "./common.js";

/**
 * @typedef {{day?: string, model?: string, task?: string, surface?: string, session?: string, title?: string, calls?: number, input?: number,
 *   output?: number, cached?: number, cache_write?: number, reasoning?: number, cost?: number | null, unpriced?: number}} Row
 * @typedef {{name: string, limit: number, used?: number | null, unit?: string, period?: string}} Limit
 * @typedef {{zone: string, from: string, to: string, rows: Row[], total: Row, limits?: Limit[], more?: boolean}} Usage
 * @typedef {"cost" | "tokens"} Unit
 * @typedef {{days: string[], names: string[], values: Map<string, number[]>}} Series values by name, one per day
 */

const STACKS = [{ id: "model", label: "By model" }, { id: "task", label: "By task" }, { id: "surface", label: "By surface" }];
const RANGES = [
  { value: "7", label: "Last 7 days" }, { value: "30", label: "Last 30 days" }, { value: "90", label: "Last 90 days" },
  { value: "month", label: "This month" }, { value: "custom", label: "From … to …" },
];
const SHOWN = 6;
const OTHERS = "others";

/** @param {Date} date @param {string} zone @returns {string} */
function dayIn(date, zone) {
  return new Intl.DateTimeFormat("en-CA", { timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit" }).format(date);
}

/** First and last day of a range. @param {string} range @param {string} zone @returns {[string, string]} */
function daysOf(range, zone) {
  const today = dayIn(new Date(), zone);
  if (range === "month") return [`${today.slice(0, 8)}01`, today];
  return [dayIn(new Date(Date.now() - (Number(range) - 1) * 86400000), zone), today];
}

/** Every day from the first to the last, as YYYY-MM-DD. @param {string} from @param {string} to @returns {string[]} */
function listDays(from, to) {
  const days = [];
  for (let time = Date.parse(from); time <= Date.parse(to) && days.length < 1000; time += 86400000) days.push(new Date(time).toISOString().slice(0, 10));
  return days;
}

/** @param {Row} row @param {Unit} unit */
const amountOf = (row, unit) => (unit === "cost" ? row.cost ?? 0 : (row.input ?? 0) + (row.output ?? 0));
/** @param {number} value @param {Unit} unit */
const showAmount = (value, unit) => (unit === "cost" ? formatMoney(value) : formatShort(value));

/** The rows as one series per name; the smallest ones are summed up. @param {Usage} usage @param {string} stack @param {Unit} unit @returns {Series} */
export function seriesOf(usage, stack, unit) {
  const days = listDays(usage.from, usage.to);
  const places = new Map(days.map((day, place) => [day, place]));
  /** @type {Map<string, number[]>} */
  const all = new Map();
  for (const row of usage.rows) {
    const name = String(/** @type {Record<string, unknown>} */ (row)[stack] || "unknown");
    const place = places.get(row.day ?? "");
    if (place === undefined) continue;
    let line = all.get(name);
    if (!line) all.set(name, (line = days.map(() => 0)));
    line[place] = (line[place] ?? 0) + amountOf(row, unit);
  }
  const sum = (/** @type {number[]} */ line) => line.reduce((total, each) => total + each, 0);
  const sorted = [...all].sort((one, two) => sum(two[1]) - sum(one[1]));
  const values = new Map(sorted.slice(0, SHOWN));
  const rest = sorted.slice(SHOWN);
  if (rest.length) values.set(OTHERS, days.map((_, place) => rest.reduce((total, [, line]) => total + (line[place] ?? 0), 0)));
  return { days, names: [...values.keys()], values };
}

/** The stacked bars. A screen reader gets the table below instead. @param {{series: Series, unit: Unit}} props */
function Chart({ series, unit }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [reading, setReading] = useState(-1);
  const [dark, setDark] = useState(0);
  useEffect(() => {
    const redraw = () => setDark((count) => count + 1);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", redraw);
    const theme = new MutationObserver(redraw);
    theme.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => { scheme.removeEventListener("change", redraw); theme.disconnect(); };
  }, []);
  useEffect(() => {
    let plot = /** @type {{destroy(): void, setSize(size: {width: number, height: number}): void} | null} */ (null);
    let left = false;
    const element = /** @type {HTMLDivElement} */ (box.current);
    const resize = new ResizeObserver(() => plot?.setSize({ width: element.clientWidth, height: 240 }));
    Promise.all([import("../vendor/uplot.js"), loadStyle("./vendor/uplot.css")]).then(([module]) => {
      if (left) return;
      plot = drawChart(module.default, element, series, unit, setReading);
      resize.observe(element);
    }, () => setReading(-2));
    return () => { left = true; resize.disconnect(); plot?.destroy(); };
  }, [series, unit, dark]);
  const day = series.days[reading];
  return html`<figure class="chart">
    <div ref=${box} class="chart-plot" role="img" aria-label="Bars per day. The same figures are in the table below."></div>
    <figcaption>
      <ul class="legend">${series.names.map((name, place) => html`<li key=${name}><i class=${`swatch chart-${place + 1}`}></i><bdi dir="auto">${name}</bdi>
        ${reading >= 0 && html`<span class="figure muted"> ${showAmount(series.values.get(name)?.[reading] ?? 0, unit)}</span>`}</li>`)}</ul>
      <p class="muted small" aria-hidden="true">${reading === -2 ? "The chart could not be loaded; the figures are below." : day ? new Date(`${day}T12:00:00Z`).toLocaleDateString(undefined, { weekday: "long", day: "numeric", month: "long", timeZone: "UTC" }) : "\u00a0"}</p>
    </figcaption>
  </figure>`;
}

/** @param {any} UPlot @param {HTMLDivElement} element @param {Series} series @param {Unit} unit @param {(place: number) => void} onPlace */
function drawChart(UPlot, element, series, unit, onPlace) {
  const style = getComputedStyle(element);
  const font = `12px ${style.fontFamily}`;
  const times = series.days.map((day) => Date.parse(day) / 1000);
  const lines = series.names.map((name) => series.values.get(name) ?? []);
  const stacked = lines.map((_, place) => times.map((_day, day) => lines.slice(place).reduce((total, line) => total + (line[day] ?? 0), 0)));
  const bars = UPlot.paths.bars({ size: [0.72, 36], radius: 0 });
  const axis = { stroke: resolveColour(element, "--muted"), font, grid: { stroke: resolveColour(element, "--line"), width: 1 }, ticks: { show: false } };
  return new UPlot({
    width: element.clientWidth, height: 240, legend: { show: false }, padding: [12, 8, 0, 0], tzDate: (/** @type {number} */ time) => UPlot.tzDate(new Date(time * 1000), "UTC"),
    cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
    scales: { x: { range: () => [(times[0] ?? 0) - 43200, (times.at(-1) ?? 0) + 43200] }, y: { range: (/** @type {any} */ _u, /** @type {number} */ _low, /** @type {number} */ high) => [0, (high || 1) * 1.08] } },
    series: [{}, ...stacked.map((_, place) => ({ label: series.names[place], fill: resolveColour(element, `--chart-${place + 1}`), stroke: "transparent", width: 0, paths: bars, points: { show: false } }))],
    axes: [
      { ...axis, grid: { show: false }, space: 70, size: 30, values: (/** @type {any} */ _u, /** @type {number[]} */ ticks) => ticks.map((time) => (time % 86400 ? "" : new Date(time * 1000).toLocaleDateString(undefined, { day: "numeric", month: "short", timeZone: "UTC" }))) },
      { ...axis, size: 64, values: (/** @type {any} */ _u, /** @type {number[]} */ ticks) => ticks.map((value) => showAmount(value, unit).replace(/(\.\d\d)0$/, "$1")) },
    ],
    hooks: { setCursor: [(/** @type {{cursor: {idx?: number | null, left?: number}}} */ plot) => onPlace((plot.cursor.left ?? -1) < 0 ? -1 : plot.cursor.idx ?? -1)] },
  }, [times, ...stacked], element);
}

/** A colour of the style as the canvas understands it. @param {HTMLElement} element @param {string} name */
function resolveColour(element, name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  element.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** @param {{total: Row}} props */
function Totals({ total }) {
  const input = total.input ?? 0;
  const share = input ? Math.round((100 * (total.cached ?? 0)) / input) : 0;
  /** @type {[string, string, string][]} */
  const figures = [
    ["Cost", total.cost === null ? "unknown" : formatMoney(total.cost), total.unpriced ? `${formatCount(total.unpriced)} calls without a known price` : ""],
    ["Model calls", formatCount(total.calls), ""],
    ["Input tokens", formatShort(input), `${formatCount(input)} tokens`],
    ["Output tokens", formatShort(total.output), total.reasoning ? `${formatShort(total.reasoning)} for reasoning` : ""],
    ["From cache", `${share} %`, `${formatCount(total.cached)} of the input tokens`],
  ];
  return html`<dl class="totals">${figures.map(([name, value, note]) => html`<div key=${name}><dt>${name}</dt><dd title=${note || undefined}>${value}</dd>
    ${name === "Cost" && note ? html`<dd class="muted small">${note}</dd>` : null}</div>`)}</dl>`;
}

/** @param {{limits: Limit[]}} props */
function Limits({ limits }) {
  const show = (/** @type {Limit} */ each, /** @type {number} */ value) => (/^(\$|usd|dollars?|cost)$/i.test(each.unit ?? "") ? formatMoney(value) : `${formatCount(value)} ${each.unit ?? ""}`.trim());
  return html`<${Section} title="Limits">${limits.map((each) => {
    const known = typeof each.used === "number";
    const share = known && each.limit ? Math.min(1, Number(each.used) / each.limit) : 0;
    return html`<div key=${`${each.name} ${each.period ?? ""}`} class="limit"><p><span><code dir="auto">${each.name}</code>${each.period ? html`<span class="muted"> per ${each.period}</span>` : null}</span>
      <span class="figure">${known ? html`${show(each, Number(each.used))} <span class="muted">of ${show(each, each.limit)}</span>` : show(each, each.limit)}</span></p>
      ${known && html`<div class="bar" role="meter" aria-label=${each.name} aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round(share * 100)}>
        <i class=${share >= 1 ? "danger" : share >= 0.8 ? "warn" : ""} style=${{ width: `${share * 100}%` }}></i></div>`}</div>`;
  })}<//>`;
}

/** The figures of the chart as a table, latest day first. @param {{series: Series, unit: Unit}} props */
function FiguresTable({ series, unit }) {
  const rows = series.days.map((day, place) => ({ day, place })).filter(({ place }) => series.names.some((name) => series.values.get(name)?.[place])).reverse();
  const line = (/** @type {string} */ name, /** @type {any} */ row) => (row.place === undefined ? (series.values.get(name) ?? []).reduce((a, b) => a + b, 0) : series.values.get(name)?.[row.place] ?? 0);
  return html`<${Table} caption=${`${unit === "cost" ? "Cost" : "Tokens"} per day`} rows=${rows} keyOf=${(/** @type {any} */ row) => row.day} foot=${{ day: "Total" }} columns=${[
    { name: "day", label: "Day" },
    ...series.names.map((name) => ({ name: `series ${name}`, label: name, align: "end", render: (/** @type {any} */ row) => (line(name, row) ? showAmount(line(name, row), unit) : html`<span class="muted">–</span>`) })),
    { name: "total", label: "Total", align: "end", render: (/** @type {any} */ row) => html`<strong>${showAmount(series.names.reduce((sum, name) => sum + line(name, row), 0), unit)}</strong>` },
  ]} />`;
}

/** @param {{params: {from: string, to: string, zone: string}}} props */
function Conversations({ params }) {
  const found = useResource(() => /** @type {Promise<Usage>} */ (get("/v1/usage", { ...params, by: "session" })), [params.from, params.to, params.zone]);
  return html`<${Section} title="Conversations that cost most"><${Loaded} resource=${found}>${(/** @type {Usage} */ usage) => {
    const rows = usage.rows.filter((row) => row.session).sort((one, two) => (two.cost ?? 0) - (one.cost ?? 0) || amountOf(two, "tokens") - amountOf(one, "tokens")).slice(0, 15);
    if (!rows.length) return html`<p class="muted">No conversations in this time.</p>`;
    return html`<${Table} caption="Conversations by cost" rows=${rows} keyOf=${(/** @type {Row} */ row) => row.session ?? ""} columns=${[
      { name: "title", label: "Conversation", render: (/** @type {Row} */ row) => html`<${ConversationLink} id=${row.session} title=${row.title || row.session} />` },
      { name: "calls", label: "Calls", align: "end", render: (/** @type {Row} */ row) => formatCount(row.calls) },
      { name: "tokens", label: "Tokens", align: "end", render: (/** @type {Row} */ row) => formatShort(amountOf(row, "tokens")) },
      { name: "cost", label: "Cost", align: "end", render: (/** @type {Row} */ row) => (row.cost === null ? "unknown" : formatMoney(row.cost)) },
    ]} />`;
  }}<//><//>`;
}

const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

/** @param {{route?: unknown}} _props */
export default function Screen(_props) {
  const [range, setRange] = useState("30");
  const [zone, setZone] = useState(HERE);
  const [stack, setStack] = useState("model");
  const [chosen, setUnit] = useState(/** @type {Unit | ""} */ (""));
  const [custom, setCustom] = useState(daysOf("30", HERE));
  const [from, to] = range === "custom" ? custom : daysOf(range, zone);
  const usage = useResource(() => /** @type {Promise<Usage>} */ (get("/v1/usage", { from, to, zone, by: `day,${stack}` })), [from, to, zone, stack]);
  const unit = chosen || (usage.data?.total?.cost === null && usage.data.rows.length ? "tokens" : "cost");
  const zones = [...new Set([HERE, "UTC", ...(Intl.supportedValuesOf?.("timeZone") ?? [])])];
  const save = () => download("/v1/usage", `usage-${from}-${to}.csv`, { from, to, zone, by: "day,model,task,surface", format: "csv" });
  return html`<${Page} title="Usage" actions=${html`<${Button} icon="download" onClick=${save}>Download CSV<//>`}>
    <div class="controls">
      <${Select} label="Time" value=${range} options=${RANGES} onChange=${setRange} />
      ${range === "custom" && html`<${Field} label="From" type="date" value=${custom[0]} max=${custom[1]} onInput=${(/** @type {string} */ day) => day && setCustom([day, custom[1]])} />
        <${Field} label="To" type="date" value=${custom[1]} min=${custom[0]} onInput=${(/** @type {string} */ day) => day && setCustom([custom[0], day])} />`}
      <${Select} label="Show" value=${unit} options=${[{ value: "cost", label: "Cost" }, { value: "tokens", label: "Tokens" }]} onChange=${setUnit} />
      <${Select} label="Days in time zone" value=${zone} options=${zones} onChange=${setZone} />
    </div>
    <${Tabs} label="Stacked by" tabs=${STACKS} current=${stack} onChange=${setStack} />
    <${Loaded} resource=${usage}>${(/** @type {Usage} */ data) => html`<${Figures} usage=${data} stack=${stack} unit=${unit} />`}<//>
    <${Conversations} params=${{ from, to, zone }} />
  <//>`;
}

/** @param {{usage: Usage, stack: string, unit: Unit}} props */
function Figures({ usage, stack, unit }) {
  const [series, setSeries] = useState(() => seriesOf(usage, stack, unit));
  useEffect(() => setSeries(seriesOf(usage, stack, unit)), [usage, stack, unit]);
  const limits = usage.limits ?? [];
  return html`<${Totals} total=${usage.total ?? {}} />
    ${usage.more ? html`<p class="muted">There are more figures than can be shown. Choose a shorter time.</p>` : null}
    ${usage.rows.length ? html`<${Chart} series=${series} unit=${unit} /><${Section} title="Figures"><${FiguresTable} series=${series} unit=${unit} /><//>`
      : html`<${Empty} icon="chart" title="No model calls in this time">Choose a longer time, or start a conversation.<//>`}
    ${limits.length ? html`<${Limits} limits=${limits} />` : null}`;
}
