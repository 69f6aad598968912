// What the keys of the page do, and the dialog that lists them, with theme, text size and notifications.
import { html, render, useState } from "./vendor/preact.js";
import { applyAppearance, choose } from "./appearance.js";
import { items } from "./chat/nodes.js";
import { notified, setNotified } from "./notices.js";
import { go } from "./router.js";
import { load } from "./storage.js";
import { Dialog, toast } from "./ui.js";

/** @type {[string, string][]} */
const LISTED = [
  ["?", "Show this list"], ["N", "New conversation"], ["/", "Search all conversations"], ["Ctrl K", "Go to a conversation, screen or setting"],
  ["I", "Write a message"], ["Esc", "Stop the running task"], ["S", "Stop the running task"], ["C", "Copy the last answer"], ["J, K", "Next and previous message"],
  ["Alt A", "Allow the open approval once"], ["Alt D", "Deny the open approval"],
];

/** @param {string} name */
const press = (name) => /** @type {HTMLElement | null} */ (document.querySelector(name))?.click();

/** @param {string} key */
export async function run(key) {
  switch (key) {
    case "?": return showKeys();
    case "n": return go("new");
    case "/": return go("search");
    case "i": return /** @type {HTMLElement | null} */ (document.querySelector(".composer textarea"))?.focus();
    case "s": return press(".composer .stop");
    case "a": return press('.question [data-choice="once"]');
    case "d": return press('.question [data-choice="no"]');
    case "c": {
      const all = [...document.querySelectorAll(".sheets .msg.assistant")].map((node) => items.get(node)?.text).filter(Boolean);
      if (!all.length) return toast("There is no answer to copy.");
      await navigator.clipboard.writeText(all.at(-1) ?? "");
      return toast("Copied the last answer.");
    }
  }
}

/** @param {{onClose: () => void}} props */
function Keys({ onClose }) {
  const [, redraw] = useState(0);
  const chosen = (/** @type {"theme" | "size" | "keys"} */ name) => (/** @type {Event} */ event) => {
    choose(name, /** @type {HTMLSelectElement} */ (event.currentTarget).value);
    redraw((count) => count + 1);
  };
  const toggle = async (/** @type {Event} */ event) => {
    const wanted = /** @type {HTMLInputElement} */ (event.currentTarget).checked;
    if (!(await setNotified(wanted))) toast("The browser does not allow notifications of this page: change it in its settings for this site.", { kind: "error" });
    redraw((count) => count + 1);
  };
  /** @param {"theme" | "size" | "keys"} name @param {string} label @param {[string, string][]} options */
  const select = (name, label, options) => html`<label>${label} <select value=${load(name)} onChange=${chosen(name)}>
    ${options.map(([value, text]) => html`<option key=${value} value=${value} selected=${value === load(name)}>${text}</option>`)}</select></label>`;
  return html`<${Dialog} title="Appearance and keys" onClose=${onClose}>
    <div class="appearance">
      ${select("theme", "Theme", [["", "Like the system"], ["light", "Light"], ["dark", "Dark"]])}
      ${select("size", "Text size", [["small", "Small"], ["", "Normal"], ["large", "Large"], ["larger", "Larger"]])}
      ${select("keys", "Single keys", [["", "On"], ["off", "Off"]])}
      <label class="check"><input type="checkbox" checked=${notified.value} onChange=${toggle} /> Notify me of answers and approvals while I look elsewhere</label>
    </div>
    <h3>Keys</h3>
    <dl class="keys">${LISTED.map(([key, text]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`)}</dl>
    <p class="muted small">Letters work outside of text fields, and everywhere with Alt.</p><//>`;
}

const host = document.createElement("div");
document.body.append(host);

export function showKeys() {
  applyAppearance();
  render(html`<${Keys} onClose=${() => render(null, host)} />`, host);
}
