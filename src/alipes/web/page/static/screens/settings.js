// Settings: controls by topic, each with its default and the reason of its value, validated before they are written.
import { batch, html, signal, useEffect, useState } from "../vendor/preact.js";
import { get, patch, post } from "../api.js";
import { go } from "../router.js";
import { mayChange } from "../state.js";
import { useModels } from "../chat/models.js";
import { Badge, Button, confirm, Empty, Field, Icon, lookUp, Select, toast, Toggle } from "./controls.js";
import { Loaded, Page, Section, Sentence, statusOf, textOf, useResource } from "./common.js";
import { nameOf, sectionOf, titleOf, TOPICS, topicOf } from "./settings_topics.js";

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

/** How a setting is edited. @param {Setting} setting @returns {"flag" | "choice" | "number" | "list" | "json" | "model" | "text"} */
export function kindOf(setting) {
  const sample = setting.value ?? setting.default;
  const nested = Array.isArray(sample) ? sample.some((each) => each !== null && typeof each === "object") : sample !== null && typeof sample === "object";
  if (nested || setting.type === "table") return "json";
  if (setting.choices?.length && setting.type !== "list") return "choice";
  if (setting.type === "flag" || typeof sample === "boolean") return "flag";
  if (setting.type === "whole" || setting.type === "number" || typeof sample === "number") return "number";
  if (setting.type === "list" || Array.isArray(sample)) return "list";
  return /(^|\.)model$/.test(setting.key) ? "model" : "text";
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
  const label = { label: nameOf(setting.key), hideLabel: true, error, disabled };
  switch (kind) {
    case "flag": return html`<${Toggle} label=${nameOf(setting.key)} hideLabel checked=${text === "true"} disabled=${disabled} onChange=${(/** @type {boolean} */ on) => input(String(on))} />${error && html`<p class="field-error" role="alert" dir="auto">${error}</p>`}`;
    case "choice": return html`<${Select} ...${label} value=${text} options=${[...new Set([text, ...(setting.choices ?? [])])].map((value) => ({ value, label: value || "(not set)" }))} onChange=${input} />`;
    case "number": return html`<${Field} ...${label} class="short" inputmode=${setting.type === "whole" ? "numeric" : "decimal"} value=${text} onInput=${input} />`;
    case "list": return html`<${Field} ...${label} rows=${Math.min(8, Math.max(2, text.split("\n").length))} mono value=${text} onInput=${input} hint="One per line." />`;
    case "json": return html`<${Field} ...${label} rows=${Math.min(14, Math.max(3, text.split("\n").length))} mono value=${text} onInput=${input} hint="JSON." />`;
    case "model": return html`<${Field} ...${label} list="models" autocomplete="off" spellcheck=${false} value=${text} onInput=${input} />`;
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
  const origin = setting.source === "default" ? "" : setting.origin?.replace(/^\S*\//, "") || `${setting.source ?? ""}${setting.line ? `, line ${setting.line}` : ""}`;
  const kind = kindOf(setting);
  return [
    origin && `from ${origin}`, isDefault ? "default" : `default: ${show(setting, setting.default).slice(0, 200) || "empty"}`,
    kind === "flag" || kind === "choice" ? "" : setting.accepts, setting.fixed ? "overridden by its variable, so it cannot be changed here" : "",
    setting.restart ? "needs a restart" : "",
  ].filter(Boolean).join(" · ");
}

/** @param {{setting: Setting, onSaved: () => unknown}} props */
function SettingRow({ setting, onSaved }) {
  const changed = Object.hasOwn(drafts.value, setting.key);
  const secret = setting.secret;
  return html`<div class=${`setting${changed ? " changed" : ""}`} id=${`setting-${setting.key}`}>
    <div class="setting-name"><h3>${nameOf(setting.key)} <code class="muted small" dir="auto">${setting.key}</code>${changed ? html` <${Badge} kind="accent">not saved<//>` : null}</h3><p class="muted"><${Sentence} text=${setting.description} /></p></div>
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
const MAX_FOUND = 100;

/** The settings of a section, folded. @param {{section: string, settings: Setting[], open: boolean, onSaved: () => unknown}} props */
function FoldedSection({ section, settings, open, onSaved }) {
  const unsaved = settings.filter((each) => Object.hasOwn(drafts.value, each.key)).length;
  const set = settings.filter((each) => each.source && each.source !== "default").length;
  return html`<details class="settings-section" open=${open || unsaved > 0}><summary><strong>${titleOf(section)}</strong>
      <span class="muted small">${settings.length === 1 ? "one setting" : `${settings.length} settings`}${set ? `, ${set} set` : ""}</span></summary>
    ${settings.map((each) => html`<${SettingRow} key=${each.key} setting=${each} onSaved=${onSaved} />`)}</details>`;
}

/** The controls of a topic: first those that most people want, then all others by section. @param {{topic: import("./settings_topics.js").Topic, settings: Setting[], wanted: string, onSaved: () => unknown}} props */
function TopicSettings({ topic, settings, wanted, onSaved }) {
  const main = Object.keys(topic.main).flatMap((key) => settings.find((each) => each.key === key) ?? []);
  const others = settings.filter((each) => topicOf(sectionOf(each.key)) === topic && !Object.hasOwn(topic.main, each.key));
  const named = Object.keys(topic.sections);
  const sections = [...new Set(others.map((each) => sectionOf(each.key)))].sort((one, two) => named.indexOf(one) - named.indexOf(two));
  return html`<section aria-label=${topic.title}><h2 class="topic-title">${topic.title}</h2><p class="muted"><${Sentence} text=${topic.lead} /></p>
    ${main.map((each) => html`<${SettingRow} key=${each.key} setting=${each} onSaved=${onSaved} />`)}
    ${sections.map((section) => html`<${FoldedSection} key=${section} section=${section} open=${wanted !== topic.id && (sectionOf(wanted) === section || wanted === section)} onSaved=${onSaved}
      settings=${others.filter((each) => sectionOf(each.key) === section)} />`)}</section>`;
}

/** The settings that have these words. @param {{settings: Setting[], words: string, onSaved: () => unknown}} props */
function FoundSettings({ settings, words, onSaved }) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const textIn = (/** @type {Setting} */ each) => `${each.key} ${nameOf(each.key)} ${titleOf(sectionOf(each.key))} ${each.description ?? ""} ${show(each, each.value)}`.toLowerCase();
  const found = settings.filter((each) => wanted.every((word) => textIn(each).includes(word)));
  return html`<${Section} title="Found" count=${found.length}>${found.length
    ? found.slice(0, MAX_FOUND).map((each) => html`<${SettingRow} key=${each.key} setting=${each} onSaved=${onSaved} />`)
    : html`<${Empty} icon="settings" title="No setting matches" />`}<//>`;
}

/** @param {{answer: SettingsAnswer, wanted: string, reload: () => Promise<void>}} props `wanted`: a topic, a section or a key. */
function Topics({ answer, wanted, reload }) {
  const [words, setWords] = useState("");
  const models = useModels();
  const secrets = answer.secrets ?? [];
  const topic = TOPICS.find((each) => each.id === wanted) ?? (wanted ? topicOf(wanted.includes(".") || answer.settings.every((each) => each.key !== wanted) ? sectionOf(`${wanted}.`) : "general") : /** @type {import("./settings_topics.js").Topic} */ (TOPICS[0]));
  const isSecrets = wanted === SECRETS && secrets.length > 0;
  const isSearch = words.trim() !== "";
  const current = isSecrets ? SECRETS : topic.id;
  const links = [...TOPICS, ...(secrets.length ? [{ id: SECRETS, title: "Secrets", icon: "lock" }] : [])];
  const open = (/** @type {string} */ id) => { setWords(""); go(`#/settings/${id}`, { replace: true }); };
  useEffect(() => { if (answer.settings.some((each) => each.key === wanted)) showFirst(wanted); }, [wanted]);
  return html`<datalist id="models">${models.models.map((each) => html`<option key=${each.name} value=${each.name}></option>`)}</datalist>
    <div class="settings"><div class="settings-topics">
      <${Field} label="Search settings" hideLabel type="search" value=${words} onInput=${setWords} placeholder="Search settings" />
      <nav aria-label="Topics">${links.map(({ id, title, icon }) => html`<a key=${id} class="side-link" href=${`#/settings/${id}`} aria-current=${!isSearch && id === current ? "page" : null} onClick=${() => setWords("")}><${Icon} name=${icon} /><span>${title}</span></a>`)}</nav>
      <${Select} class="only-narrow" label="Topic" hideLabel value=${current} options=${links.map(({ id, title }) => ({ value: id, label: title }))} onChange=${open} /></div>
    <div class="settings-list">${(answer.problems ?? []).map((each) => html`<p key=${each} class="field-error" dir="auto">${each}</p>`)}
      ${isSearch ? html`<${FoundSettings} settings=${answer.settings} words=${words} onSaved=${reload} />`
        : isSecrets ? html`<section aria-label="Secrets"><h2 class="topic-title">Secrets</h2><${Secrets} secrets=${secrets} onSaved=${reload} /></section>`
        : html`<${TopicSettings} key=${current} topic=${topic} settings=${answer.settings} wanted=${wanted} onSaved=${reload} />`}
      <${SaveBar} answer=${answer} onSaved=${reload} /></div></div>`;
}

/** Settings that exist before they are written, and are not in the list. */
const UNLISTED = ["auxiliary.titles.model", "auxiliary.compaction.model"];

/** @returns {Promise<SettingsAnswer>} */
async function loadSettings() {
  const [answer, ...more] = await Promise.all([get("/v1/settings"), ...UNLISTED.map((key) => get(`/v1/settings/${key}`).catch(() => null))]);
  const known = new Set(answer.settings.map((/** @type {Setting} */ each) => each.key));
  return { ...answer, settings: [...answer.settings, ...more.filter((each) => each?.key && !known.has(each.key))] };
}

/** @param {{route: {params: string[], query: URLSearchParams}}} props */
export default function Screen({ route }) {
  const found = useResource(loadSettings, [], ["settings"]);
  const file = found.data?.file;
  return html`<${Page} title="Settings" lead=${file ? html`Written to <code dir="auto">${file}</code>, which you can also edit by hand.` : null}>
    <${RestartNotice} />
    <${Loaded} resource=${found}>${(/** @type {SettingsAnswer} */ answer) => html`<${Topics} answer=${answer} wanted=${route.params[0] ?? ""} reload=${found.reload} />`}<//>
  <//>`;
}
