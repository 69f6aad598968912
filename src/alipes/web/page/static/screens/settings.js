// Settings: grouped and searchable, each with its default and source, validated before it is written.
import { batch, html, signal, useEffect, useState } from "../vendor/preact.js";
import { get, patch, post } from "../api.js";
import { go } from "../router.js";
import { mayChange } from "../state.js";
import { Badge, Button, confirm, Empty, Field, lookUp, Select, toast, Toggle } from "./controls.js";
import { Loaded, Page, Section, Sentence, statusOf, textOf, useResource } from "./common.js";

/**
 * @typedef {{key: string, value?: unknown, default?: unknown, source?: string, origin?: string, line?: number, type?: string, accepts?: string, choices?: string[],
 *   min?: number, max?: number, description?: string, variable?: string, fixed?: boolean, secret?: string, set?: boolean, restart?: boolean, why?: string}} Setting
 * @typedef {{name: string, set?: boolean, source?: string, used?: string | string[] | boolean}} Secret
 * @typedef {{file?: string, base?: string, settings: Setting[], secrets?: Secret[], problems?: string[]}} SettingsAnswer
 */

/** What is typed and not saved, by key: it survives errors and leaving the screen. null means: back to the default. */
const drafts = signal(/** @type {Record<string, string | null>} */ ({}));
const problems = signal(/** @type {Record<string, string>} */ ({}));
const restartNeeded = signal(false);

/** How a setting is edited. @param {Setting} setting @returns {"flag" | "choice" | "number" | "list" | "json" | "text"} */
export function kindOf(setting) {
  const sample = setting.value ?? setting.default;
  const nested = Array.isArray(sample) ? sample.some((each) => each !== null && typeof each === "object") : sample !== null && typeof sample === "object";
  if (nested || setting.type === "table") return "json";
  if (setting.choices?.length && setting.type !== "list") return "choice";
  if (setting.type === "flag" || typeof sample === "boolean") return "flag";
  if (setting.type === "whole" || setting.type === "number" || typeof sample === "number") return "number";
  return setting.type === "list" || Array.isArray(sample) ? "list" : "text";
}

/** A value as the text of its control. @param {Setting} setting @param {unknown} value */
function show(setting, value) {
  if (value === null || value === undefined) return "";
  const kind = kindOf(setting);
  if (kind === "list" && Array.isArray(value)) return value.join("\n");
  return kind === "json" ? JSON.stringify(value, null, 2) : String(value);
}

/** The value that a typed text means; throws if it means none. @param {Setting} setting @param {string} text */
function parse(setting, text) {
  switch (kindOf(setting)) {
    case "flag": return text === "true";
    case "number": return text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
    case "list": return text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => (Array.isArray(setting.value) && setting.value.length && setting.value.every((each) => typeof each === "number") && /^-?\d+$/.test(line) ? Number(line) : line));
    case "json":
      try {
        return JSON.parse(text || "{}");
      } catch (error) {
        throw new Error(`This is not valid JSON: ${textOf(error)}`);
      }
    default: return text;
  }
}

/** @param {string} key @param {string | null | undefined} text undefined: as it is stored */
function setDraft(key, text) {
  const { [key]: _before, ...others } = drafts.value;
  const { [key]: _problem, ...left } = problems.value;
  batch(() => {
    drafts.value = text === undefined ? others : { ...others, [key]: text };
    problems.value = left;
  });
}

/** A secret can be set and removed, and never be read. @param {{secret: Secret, onSaved: () => unknown}} props */
function SecretField({ secret, onSaved }) {
  const [value, setValue] = useState("");
  const [problem, setProblem] = useState("");
  const write = async (/** @type {string | null} */ next) => {
    setProblem("");
    try {
      await patch("/v1/settings/secrets", { name: secret.name, value: next });
      setValue("");
      restartNeeded.value = true;
      toast(next === null ? "Removed." : "Stored.");
      await onSaved();
    } catch (error) {
      setProblem(textOf(error));
    }
  };
  const remove = async () => { if (await confirm({ title: `Remove ${secret.name}?`, text: "What uses it stops working after the next restart.", action: "Remove", danger: true })) await write(null); };
  return html`<form class="inline-form" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); if (value) write(value); }}>
    <${Field} label=${secret.name} type="password" autocomplete="off" value=${value} onInput=${setValue} error=${problem} placeholder=${secret.set ? "set; type to replace it" : "not set"} disabled=${!mayChange.value} />
    ${mayChange.value && html`<${Button} type="submit" disabled=${!value}>Store<//>${secret.set ? html`<${Button} kind="danger" onClick=${remove}>Remove<//>` : null}`}</form>`;
}

/** @param {{setting: Setting}} props */
function SettingControl({ setting }) {
  const kind = kindOf(setting);
  const stored = show(setting, setting.value);
  const draft = lookUp(drafts.value, setting.key, undefined);
  const text = draft === null ? show(setting, setting.default) : draft ?? stored;
  const error = lookUp(problems.value, setting.key, undefined);
  const disabled = !mayChange.value || Boolean(setting.fixed);
  const input = (/** @type {string} */ next) => setDraft(setting.key, next === stored ? undefined : next);
  const label = { label: setting.key, hideLabel: true, error, disabled };
  switch (kind) {
    case "flag": return html`<${Toggle} label=${setting.key} hideLabel checked=${text === "true"} disabled=${disabled} onChange=${(/** @type {boolean} */ on) => input(String(on))} />${error && html`<p class="field-error" role="alert" dir="auto">${error}</p>`}`;
    case "choice": return html`<${Select} ...${label} value=${text} options=${[...new Set([text, ...(setting.choices ?? [])])].map((value) => ({ value, label: value || "(none)" }))} onChange=${input} />`;
    case "number": return html`<${Field} ...${label} inputmode="decimal" value=${text} onInput=${input} />`;
    case "list": return html`<${Field} ...${label} rows=${Math.min(8, Math.max(2, text.split("\n").length))} mono value=${text} onInput=${input} hint="One per line." />`;
    case "json": return html`<${Field} ...${label} rows=${Math.min(14, Math.max(3, text.split("\n").length))} mono value=${text} onInput=${input} hint="JSON." />`;
    default: return text.length > 80 || text.includes("\n") ? html`<${Field} ...${label} rows=${4} value=${text} onInput=${input} />` : html`<${Field} ...${label} value=${text} onInput=${input} />`;
  }
}

/** Why a setting has its value, asked when opened. @param {{setting: Setting}} props */
function Why({ setting }) {
  const [why, setWhy] = useState("");
  const open = async (/** @type {{currentTarget: HTMLDetailsElement}} */ event) => {
    if (!event.currentTarget.open || why) return;
    try {
      setWhy(/** @type {Setting} */ (await get(`/v1/settings/${encodeURIComponent(setting.key)}`)).why || "There is nothing more to say.");
    } catch (error) {
      setWhy(textOf(error));
    }
  };
  return html`<details class="why" onToggle=${open}><summary>Why this value?</summary><div class="long-text"><${Sentence} text=${why || "…"} /></div></details>`;
}

/** Where the value comes from, what is allowed and what a change needs, in one line. @param {Setting} setting */
function notesOf(setting) {
  const isDefault = setting.source === "default" || JSON.stringify(setting.value ?? null) === JSON.stringify(setting.default ?? null);
  const origin = setting.source === "default" ? "" : setting.origin || `${setting.source ?? ""}${setting.line ? `, line ${setting.line}` : ""}`;
  const kind = kindOf(setting);
  return [
    isDefault ? "default" : `default: ${show(setting, setting.default).slice(0, 200) || "empty"}`, origin,
    kind === "flag" || kind === "choice" ? "" : setting.accepts, setting.fixed ? "overridden by its variable, so it cannot be changed here" : "",
    setting.restart ? "needs a restart" : "",
  ].filter(Boolean).join(" · ");
}

/** @param {{setting: Setting, onSaved: () => unknown}} props */
function SettingRow({ setting, onSaved }) {
  const changed = Object.hasOwn(drafts.value, setting.key);
  const secret = setting.secret;
  return html`<div class=${`setting${changed ? " changed" : ""}`} id=${`setting-${setting.key}`}>
    <div class="setting-name"><h3><code dir="auto">${setting.key}</code>${changed ? html` <${Badge} kind="accent">not saved<//>` : null}</h3><p class="muted"><${Sentence} text=${setting.description} /></p></div>
    <div class="setting-value"><${SettingControl} setting=${setting} />
      <p class="muted small" dir="auto">${notesOf(setting)}</p>
      ${secret ? html`<${SecretField} secret=${{ name: secret, set: setting.set }} onSaved=${onSaved} />` : null}
      ${mayChange.value && (changed || setting.source === "file") ? html`<div class="row">${changed ? html`<${Button} small kind="quiet" onClick=${() => setDraft(setting.key, undefined)}>Discard<//>` : html`<${Button} small kind="quiet" onClick=${() => setDraft(setting.key, null)}>Back to the default<//>`}</div>` : null}
      <${Why} setting=${setting} /></div>
  </div>`;
}

/** @param {{secrets: Secret[], onSaved: () => unknown}} props */
function Secrets({ secrets, onSaved }) {
  return html`<p class="muted">Secrets are stored in <code>.env</code>. The page can set them, and never shows them.</p>
    ${secrets.map((each) => html`<div key=${each.name} class="setting"><div class="setting-name"><p class="muted" dir="auto">${[each.set ? "set" : "not set", each.source, Array.isArray(each.used) ? `used by ${each.used.join(", ")}` : typeof each.used === "string" && each.used ? `used by ${each.used}` : ""].filter(Boolean).join(" · ")}</p></div>
      <div class="setting-value"><${SecretField} secret=${each} onSaved=${onSaved} /></div></div>`)}`;
}

/** Unsaved changes and their buttons, always in view. @param {{answer: SettingsAnswer, onSaved: () => Promise<void>}} props */
function SaveBar({ answer, onSaved }) {
  const [problem, setProblem] = useState("");
  const keys = Object.keys(drafts.value);
  if (!keys.length) return null;
  const save = async () => {
    setProblem("");
    /** @type {Record<string, unknown>} */
    const changes = {};
    /** @type {Record<string, string>} */
    const wrong = {};
    for (const key of keys) {
      const setting = answer.settings.find((each) => each.key === key);
      const text = drafts.value[key];
      try {
        changes[key] = text === null || text === undefined || !setting ? null : parse(setting, text);
      } catch (error) {
        wrong[key] = textOf(error);
      }
    }
    problems.value = wrong;
    if (Object.keys(wrong).length) return showFirst(Object.keys(wrong)[0] ?? "");
    try {
      const done = /** @type {{restart?: boolean, problems?: string[]}} */ (await patch("/v1/settings", { changes, ...(answer.base ? { base: answer.base } : {}) }));
      batch(() => { drafts.value = {}; problems.value = {}; if (done?.restart) restartNeeded.value = true; });
      toast("Saved.");
      await onSaved();
    } catch (error) {
      const text = textOf(error);
      const key = keys.filter((each) => text.includes(each)).sort((one, two) => two.length - one.length)[0];
      if (key) { problems.value = { [key]: text }; showFirst(key); } else setProblem(text);
      if (statusOf(error) === 409) { setProblem(text); await onSaved(); }
    }
    return undefined;
  };
  return html`<div class="save-bar" role="region" aria-label="Unsaved changes"><span>${keys.length === 1 ? "One change is not saved." : `${keys.length} changes are not saved.`}${problem ? html` <span class="field-error" role="alert" dir="auto">${problem}</span>` : null}</span>
    <span class="row"><${Button} onClick=${() => batch(() => { drafts.value = {}; problems.value = {}; })}>Discard<//><${Button} kind="primary" onClick=${save}>Save<//></span></div>`;
}

/** @param {string} key */
function showFirst(key) {
  requestAnimationFrame(() => document.getElementById(`setting-${key}`)?.scrollIntoView({ block: "center" }));
}

/** Restart the server and wait until it is back. */
async function restart() {
  if (!(await confirm({ title: "Restart the server?", text: "Running tasks resume after the restart.", action: "Restart" }))) return;
  const before = /** @type {{started?: number}} */ (await get("/v1/server"));
  await post("/v1/server/restart", {});
  toast("Restarting …");
  for (let attempt = 0; attempt < 120; attempt++) {
    await new Promise((done) => setTimeout(done, 500));
    const now = /** @type {{started?: number} | null} */ (await get("/v1/server").catch(() => null));
    if (now && now.started !== before.started) {
      restartNeeded.value = false;
      toast("Restarted.");
      return;
    }
  }
  throw new Error("The server did not come back within a minute. Check `alipes serve` on its machine.");
}

function RestartNotice() {
  if (!restartNeeded.value) return null;
  return html`<div class="notice row" role="status"><span>Some changes take effect after a restart.</span>${mayChange.value ? html`<${Button} small icon="refresh" onClick=${restart}>Restart<//>` : null}</div>`;
}

const SECRETS = "secrets";

/** @param {Setting} setting */
const groupOf = (setting) => (setting.key.includes(".") ? setting.key.split(".")[0] ?? "" : "general");

/** @param {{answer: SettingsAnswer, section: string, reload: () => Promise<void>}} props */
function Groups({ answer, section, reload }) {
  const [words, setWords] = useState("");
  /** @type {Map<string, Setting[]>} */
  const groups = new Map();
  for (const each of answer.settings) groups.set(groupOf(each), [...(groups.get(groupOf(each)) ?? []), each]);
  const secrets = answer.secrets ?? [];
  const names = [...groups.keys()].sort((one, two) => Number(two === "general") - Number(one === "general") || one.localeCompare(two));
  if (secrets.length) names.push(SECRETS);
  const chosen = section === SECRETS && secrets.length ? SECRETS : groups.has(section) ? section : groups.has(section.split(".")[0] ?? "") ? section.split(".")[0] ?? "" : names[0] ?? "";
  const needle = words.trim().toLowerCase();
  const shown = needle ? answer.settings.filter((each) => `${each.key} ${each.description ?? ""} ${show(each, each.value)}`.toLowerCase().includes(needle)) : groups.get(chosen) ?? [];
  useEffect(() => { if (section.includes(".")) showFirst(section); }, [section]);
  return html`<div class="controls"><${Field} label="Search settings" type="search" value=${words} onInput=${setWords} placeholder="Name, description or value" />
      <${Select} label="Group" value=${chosen} options=${names.map((name) => ({ value: name, label: `${name} (${name === SECRETS ? secrets.length : groups.get(name)?.length ?? 0})` }))} onChange=${(/** @type {string} */ name) => { setWords(""); go(`#/settings/${encodeURIComponent(name)}`, { replace: true }); }} /></div>
    ${(answer.problems ?? []).map((each) => html`<p key=${each} class="field-error" dir="auto">${each}</p>`)}
    ${chosen === SECRETS && !needle ? html`<${Section} title="Secrets" count=${secrets.length}><${Secrets} secrets=${secrets} onSaved=${reload} /><//>`
      : html`<${Section} title=${needle ? "Found" : chosen} count=${shown.length}>${shown.length
        ? shown.slice(0, 200).map((each) => html`<${SettingRow} key=${each.key} setting=${each} onSaved=${reload} />`)
        : html`<${Empty} icon="settings" title="No setting matches" />`}<//>`}
    <${SaveBar} answer=${answer} onSaved=${reload} />`;
}

/** @param {{route: {params: string[], query: URLSearchParams}}} props */
export default function Screen({ route }) {
  const found = useResource(() => /** @type {Promise<SettingsAnswer>} */ (get("/v1/settings")), [], ["settings"]);
  const file = found.data?.file;
  return html`<${Page} title="Settings" lead=${file ? html`Written to <code dir="auto">${file}</code>, which you can also edit by hand.` : null}>
    <${RestartNotice} />
    <${Loaded} resource=${found}>${(/** @type {SettingsAnswer} */ answer) => html`<${Groups} answer=${answer} section=${route.params[0] ?? ""} reload=${found.reload} />`}<//>
  <//>`;
}
