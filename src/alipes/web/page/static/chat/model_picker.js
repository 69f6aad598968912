// The list of models: searched by words, each with its provider, its context window and its prices.
import { html, useRef, useState } from "../vendor/preact.js";
import { Dialog, formatMoney, formatShort } from "../ui.js";
import { splitName } from "./models.js";

/** @typedef {import("./models.js").Model} Model */

/** @param {{known: import("./models.js").Models, model: string, onChoose: (name: string) => unknown, onClose: () => void}} props */
export default function ModelPicker({ known, model, onChoose, onClose }) {
  const [words, setWords] = useState("");
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const needle = words.toLowerCase().split(/\s+/).filter(Boolean);
  const found = known.models.filter((each) => needle.every((word) => each.name.toLowerCase().includes(word)));
  const typed = words.trim();
  const other = typed.includes("/") && !known.models.some((each) => each.name === typed) ? typed : "";
  /** @param {string} name */
  const choose = (name) => {
    onClose();
    if (name !== model) onChoose(name);
  };
  /** @param {KeyboardEvent} event */
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const all = /** @type {HTMLElement[]} */ ([...(list.current?.querySelectorAll("button") ?? [])]);
    if (event.key === "Enter" && /** @type {Element} */ (event.target).matches("input") && typed) all[0]?.click();
    if (!step || !all.length) return;
    event.preventDefault();
    const at = all.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    all[(at + step + all.length) % all.length]?.focus();
  };
  return html`<${Dialog} title="Model" onClose=${onClose} class="models"><div onKeyDown=${move}>
    <input type="search" autofocus aria-label="Find a model" placeholder="Find a model" autocomplete="off" value=${words}
      onInput=${(/** @type {Event} */ event) => setWords(/** @type {HTMLInputElement} */ (event.currentTarget).value)} />
    <ul ref=${list} class="model-list">
      ${!needle.length && known.default && html`<li><button type="button" aria-current=${model ? null : "true"} onClick=${() => choose("")}>
        <span><bdi>Default</bdi> <span class="muted"><bdi>${known.default}</bdi></span></span></button></li>`}
      ${found.map((each) => html`<${Row} key=${each.name} model=${each} current=${each.name === model} choose=${choose} />`)}
      ${other && html`<li><button type="button" onClick=${() => choose(other)}><span>Use <bdi>${other}</bdi></span></button></li>`}
    </ul>
    ${!found.length && !other && html`<p class="muted" role="status">No model matches. Another one can be given as provider/model.</p>`}
  </div><//>`;
}

/** @param {{model: Model, current: boolean, choose: (name: string) => void}} props */
function Row({ model, current, choose }) {
  const price = model.input_price === 0 && !model.output_price ? "free" : typeof model.input_price === "number"
    ? `${formatMoney(model.input_price)} in, ${formatMoney(model.output_price)} out per million tokens` : "price unknown";
  const window = model.context ? `${formatShort(model.context)} tokens` : "";
  return html`<li><button type="button" aria-current=${current ? "true" : null} onClick=${() => choose(model.name)}>
    <span><bdi>${splitName(model.name)[0]}</bdi> <span class="muted"><bdi>${model.provider}</bdi></span></span>
    <span class="muted small">${[window, price].filter(Boolean).join(" · ")}</span></button></li>`;
}
