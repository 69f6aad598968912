// Controls of the screens: forms, tables, tabs and figures. Passes on those of ui.js.
import { html, useId, useState } from "../vendor/preact.js";
import { attempt, Button, formatCount, formatDuration, formatMoney, Icon, Text } from "../ui.js";

export * from "../ui.js";

/** @typedef {import("../vendor/preact.js").Child} Child */

/** The value of a name in a table, or what else to take: names come from elsewhere, and may be `constructor`. @template T, U @param {Record<string, T>} table @param {string | undefined} name @param {U} other @returns {T | U} */
export function lookUp(table, name, other) {
  return name !== undefined && Object.hasOwn(table, name) ? /** @type {T} */ (table[name]) : other;
}

/** @param {{seconds?: number | null}} props */
export const Duration = ({ seconds }) => html`<span class="figure">${formatDuration(seconds)}</span>`;

/** @param {{value?: number | null}} props */
export const Money = ({ value }) => html`<span class="figure">${formatMoney(value)}</span>`;

/**
 * A labelled text control with its hint and error. `onInput` gets the text.
 * @param {{label: string, value?: string | number | null, onInput?: (value: string) => void, hint?: Child, error?: string, type?: string,
 *   rows?: number, mono?: boolean, hideLabel?: boolean, inputRef?: any, children?: Child, class?: string, [rest: string]: any}} props
 */
export function Field({ label, value, onInput, hint, error, type = "text", rows, mono, hideLabel, inputRef, children, class: more, ...rest }) {
  const id = useId();
  const notes = [error ? `${id}-error` : "", hint ? `${id}-hint` : ""].filter(Boolean).join(" ");
  const control = {
    id, value: value ?? "", dir: "auto", class: mono ? "mono" : undefined, ref: inputRef,
    "aria-describedby": notes || undefined, "aria-invalid": error ? "true" : undefined,
    onInput: (/** @type {{currentTarget: HTMLInputElement}} */ event) => onInput?.(event.currentTarget.value), ...rest,
  };
  return html`<div class=${`field${more ? ` ${more}` : ""}`}>
    <label for=${id} class=${hideLabel ? "hidden-label" : undefined}>${label}</label>
    ${rows ? html`<textarea rows=${rows} ...${control}></textarea>` : html`<input type=${type} ...${control} />`}${children}
    ${error && html`<p class="field-error" id=${`${id}-error`} role="alert" dir="auto">${error}</p>`}
    ${hint && html`<p class="field-hint" id=${`${id}-hint`}>${hint}</p>`}
  </div>`;
}

/**
 * A labelled choice. Options are texts or `{value, label}`.
 * @param {{label: string, value?: string | null, options: (string | {value: string, label: string})[], onChange: (value: string) => unknown,
 *   hint?: Child, error?: string, hideLabel?: boolean, [rest: string]: any}} props
 */
export function Select({ label, value, options, onChange, hint, error, hideLabel, class: more, ...rest }) {
  const id = useId();
  const change = (/** @type {{currentTarget: HTMLSelectElement}} */ event) => {
    const chosen = event.currentTarget.value;
    attempt(() => onChange(chosen));
  };
  return html`<div class=${`field${more ? ` ${more}` : ""}`}>
    <label for=${id} class=${hideLabel ? "hidden-label" : undefined}>${label}</label>
    <span class="select"><select id=${id} value=${value ?? ""} onChange=${change} aria-invalid=${error ? "true" : undefined} ...${rest}>
      ${options.map((option) => {
        const each = typeof option === "string" ? { value: option, label: option } : option;
        return html`<option key=${each.value} value=${each.value} selected=${each.value === (value ?? "")}>${each.label}</option>`;
      })}
    </select><${Icon} name="down" size=${14} /></span>
    ${error && html`<p class="field-error" role="alert" dir="auto">${error}</p>`}${hint && html`<p class="field-hint">${hint}</p>`}
  </div>`;
}

/** A labelled switch. @param {{label: string, checked?: boolean, onChange: (checked: boolean) => unknown, disabled?: boolean, hideLabel?: boolean}} props */
export function Toggle({ label, checked, onChange, disabled, hideLabel }) {
  const change = (/** @type {{currentTarget: HTMLInputElement}} */ event) => {
    const chosen = event.currentTarget.checked;
    attempt(() => onChange(chosen));
  };
  return html`<label class="toggle"><input type="checkbox" role="switch" checked=${checked} disabled=${disabled} onChange=${change} />
    <span class="track" aria-hidden="true"></span><span class=${hideLabel ? "hidden-label" : undefined}>${label}</span></label>`;
}

/** @param {{kind?: "plain" | "ok" | "warn" | "danger" | "accent", children?: Child, title?: string}} props */
export const Badge = ({ kind = "plain", children, title }) => html`<span class=${`badge ${kind}`} title=${title} dir="auto">${children}</span>`;

/**
 * A table that becomes a list of cards on a narrow screen. Columns without `render` show `row[name]`.
 * @param {{caption: string, columns: {name: string, label: string, align?: "end", hideLabel?: boolean, class?: string, render?: (row: any) => Child}[],
 *   rows: any[], keyOf?: (row: any, index: number) => string | number, foot?: any}} props
 */
export function Table({ caption, columns, rows, keyOf, foot }) {
  const cells = (/** @type {any} */ row) => columns.map((column, place) => {
    const content = column.render ? column.render(row) : html`<${Text} value=${String(row[column.name] ?? "")} />`;
    const look = `${column.align === "end" ? "end" : ""}${column.class ? ` ${column.class}` : ""}` || undefined;
    return html`<td key=${column.name} role="cell" class=${look} data-label=${column.hideLabel || place === 0 ? undefined : column.label}><div>${content}</div></td>`;
  });
  return html`<div class="table-box"><table role="table" class="table">
    <caption class="hidden-label">${caption}</caption>
    <thead role="rowgroup"><tr role="row">${columns.map((column) => html`<th key=${column.name} role="columnheader" scope="col" class=${column.align === "end" ? "end" : undefined}>
      <span class=${column.hideLabel ? "hidden-label" : undefined}>${column.label}</span></th>`)}</tr></thead>
    <tbody role="rowgroup">${rows.map((row, index) => html`<tr role="row" key=${keyOf ? keyOf(row, index) : index}>${cells(row)}</tr>`)}</tbody>
    ${foot && html`<tfoot role="rowgroup"><tr role="row">${cells(foot)}</tr></tfoot>`}
  </table></div>`;
}

/** A person's text, with its line breaks; long texts are cut until asked for. @param {{text?: string | null, limit?: number}} props */
export function LongText({ text, limit = 2000 }) {
  const [whole, setWhole] = useState(false);
  const value = text ?? "";
  const long = value.length > limit && !whole;
  return html`<div class="long-text" dir="auto">${long ? value.slice(0, limit) : value}${long && html`… <${Button} small onClick=${() => setWhole(true)}>Show all ${formatCount(value.length)} characters<//>`}</div>`;
}

/** Tabs by arrow keys. @param {{label: string, tabs: {id: string, label: string, count?: number}[], current: string, onChange: (id: string) => void}} props */
export function Tabs({ label, tabs, current, onChange }) {
  const move = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const place = tabs.findIndex((each) => each.id === current);
    const next = (place + step + tabs.length) % tabs.length;
    onChange(tabs[next]?.id ?? current);
    const list = /** @type {HTMLElement} */ (event.currentTarget);
    /** @type {HTMLElement | undefined} */ (list.children[next])?.focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${move}>${tabs.map((each) => html`
    <button key=${each.id} type="button" role="tab" aria-selected=${each.id === current ? "true" : "false"} tabindex=${each.id === current ? 0 : -1}
      onClick=${() => onChange(each.id)}>${each.label}${each.count ? html`<span class="count">${each.count}</span>` : ""}</button>`)}</div>`;
}
