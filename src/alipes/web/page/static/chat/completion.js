// The commands that start with what was typed.
import { html, useEffect, useRef } from "../vendor/preact.js";

/** @typedef {import("./composer.js").Command} Command */

/** @param {{commands: Command[], at: number, choose: (name: string) => void}} props */
export default function Completion({ commands, at, choose }) {
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" }), [at]);
  return html`<ul ref=${list} class="completion" id="commands" tabindex="0" role="listbox" aria-label="Commands">${commands.map((each, index) => html`
    <li key=${each.name} id=${`command-${index}`} role="option" aria-selected=${index === at ? "true" : "false"}
      onMouseDown=${(/** @type {Event} */ event) => { event.preventDefault(); choose(each.name); }}>
      <code>/${each.name} ${each.args}</code><span class="muted">${each.help}</span></li>`)}</ul>`;
}
