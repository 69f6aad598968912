// Adding from a source: what is there is looked at first, then exactly that is installed.
import { html, useState } from "../vendor/preact.js";
import { Button, Dialog, Field, Text } from "./controls.js";
import { Facts, textOf } from "./common.js";

/**
 * @typedef {{name: string, version?: string, description?: string, sha256: string, details: [string, string][], problem?: string, installed?: boolean}} Offer
 */

/**
 * @param {{title: string, hint: string, look: (source: string) => Promise<Offer[]>, install: (source: string, offer: Offer) => Promise<unknown>,
 *   action: string, warning: string, onClose: () => void}} props
 */
export function SourceDialog({ title, hint, look, install, action, warning, onClose }) {
  const [source, setSource] = useState("");
  const [offers, setOffers] = useState(/** @type {Offer[] | null} */ (null));
  const [problem, setProblem] = useState("");
  const attempt = async (/** @type {() => Promise<unknown>} */ act) => {
    setProblem("");
    try {
      await act();
    } catch (error) {
      setProblem(textOf(error));
    }
  };
  const fetchOffers = () => attempt(async () => setOffers(await look(source.trim())));
  const add = (/** @type {Offer} */ offer) => attempt(async () => {
    await install(source.trim(), offer);
    onClose();
  });
  return html`<${Dialog} title=${title} wide onClose=${onClose}>
    <form class="stack" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <${Field} label="Source" value=${source} autofocus required autocomplete="off" spellcheck=${false} hint=${hint} error=${problem}
        onInput=${(/** @type {string} */ text) => { setSource(text); setOffers(null); }} />
      ${!offers && html`<div class="row"><${Button} kind="primary" type="submit" icon="search" disabled=${!source.trim()} onClick=${fetchOffers}>Look at it<//></div>`}
    </form>
    ${offers?.map((offer) => html`<article key=${offer.name} class="card" aria-label=${offer.name}>
      <header class="card-head"><span><strong><${Text} value=${offer.name} /></strong> <span class="muted" dir="auto">${offer.version}</span></span></header>
      ${offer.description && html`<p dir="auto">${offer.description}</p>`}
      <${Facts} facts=${offer.details} />
      ${offer.problem && html`<p class="field-error" dir="auto">${offer.problem}</p>`}
      ${offer.installed ? html`<p class="muted">There is one of this name already. Remove it first.</p>`
        : !offer.problem && html`<div class="row"><${Button} kind="primary" icon="plus" onClick=${() => add(offer)}>${action}<//></div>`}
    </article>`)}
    ${offers && html`<p class="muted small">${warning}</p>`}
  <//>`;
}
