// The model that answers: its name and provider, and the list to choose another from.
import { html, useEffect, useState } from "../vendor/preact.js";
import { get, loggedIn } from "../api.js";
import { Lazy } from "./lazy.js";

/** @typedef {{name: string, provider: string, context?: number, input_price?: number, output_price?: number}} Model */
/** @typedef {{current: string, default: string, models: Model[]}} Models */

/** @type {Models} */
const NONE = { current: "", default: "", models: [] };
/** @type {Promise<Models> | null} */
let models = null;

/** @returns {Promise<Models>} */
export function listModels() {
  models ??= get("model-choices").then((found) => ({ ...NONE, ...found }), () => {
    models = null;
    return NONE;
  });
  return /** @type {Promise<Models>} */ (models);
}
loggedIn.subscribe(() => (models = null));

/** @returns {Models} */
export function useModels() {
  const [known, setKnown] = useState(NONE);
  useEffect(() => {
    listModels().then(setKnown);
  }, []);
  return known;
}

/** A model's own name and its provider. @param {string} name @returns {[string, string]} */
export function splitName(name) {
  const at = name.indexOf("/");
  return at < 0 ? [name, ""] : [name.slice(at + 1), name.slice(0, at)];
}

/** @param {{known: Models, model: string, onChoose: (name: string) => unknown}} props */
export function ModelButton({ known, model, onChoose }) {
  const [open, setOpen] = useState(false);
  const shown = model || known.default || known.current || "";
  const [own, provider] = splitName(shown);
  return html`<button type="button" class="quiet-select model-button" aria-label=${`Model: ${shown || "default"}`} aria-haspopup="dialog" title=${shown} onClick=${() => setOpen(true)}>
      <bdi>${own || "Model"}</bdi>${provider && html` <span class="provider"><bdi>${provider}</bdi></span>`}</button>
    ${open && html`<${Lazy} path="./model_picker.js" known=${known} model=${model} onChoose=${onChoose} onClose=${() => setOpen(false)} />`}`;
}
