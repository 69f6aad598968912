// How the page looks and which keys it listens to: chosen in this browser, applied before anything is shown.
import { load, save } from "./storage.js";

export const SIZES = { "": "100%", small: "87.5%", large: "112.5%", larger: "125%" };

/** Show the page with the theme and the text size that were chosen. */
export function applyAppearance() {
  const root = document.documentElement;
  const theme = load("theme");
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  else delete root.dataset.theme;
  root.style.fontSize = SIZES[/** @type {keyof typeof SIZES} */ (load("size"))] ?? "";
}

/** @param {"theme" | "size" | "keys"} name @param {string} value */
export function choose(name, value) {
  save(name, value);
  applyAppearance();
}

const KEYS = /^(Slash|Key[NCISJKAD])$/;
/** Keys that answer an approval: never without Alt, so that no letter does. */
const ANSWERS = /^Key[AD]$/;

/** Whether a key is one of the page's: alone outside of text fields, with Alt everywhere. @param {KeyboardEvent} event */
export function isShortcut(event) {
  if (event.ctrlKey || event.metaKey || event.isComposing || event.defaultPrevented || document.querySelector("dialog[open]")) return false;
  if (!KEYS.test(event.code) || /^Key[JK]$/.test(event.code)) return event.key === "?" && isFree(event);
  if (event.altKey) return event.code !== "Slash";
  return isFree(event) && !ANSWERS.test(event.code) && (!event.shiftKey || event.key === "?");
}

/** @param {KeyboardEvent} event */
function isFree(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  return load("keys") !== "off" && !target.closest("input, textarea, select, [contenteditable], [role=menu]");
}

applyAppearance();
addEventListener("storage", applyAppearance);
