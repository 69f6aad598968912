// The address of a screen: what follows # in the page's URL.
import { signal } from "./vendor/preact.js";

/**
 * @typedef {object} Route
 * @property {string} name First word: "c" (a conversation), "new", "inbox", "usage", ...
 * @property {string[]} params The words after it.
 * @property {URLSearchParams} query
 */

/** @returns {Route} */
function parse() {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const words = path.split("/").filter(Boolean).map(decode);
  return { name: words[0] || "new", params: words.slice(1), query: new URLSearchParams(query) };
}

/** @param {string} word */
function decode(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

export const route = signal(parse());
/** What the tab is called, before the name of the program. */
export const pageTitle = signal("");

addEventListener("hashchange", () => {
  if (!location.hash.startsWith("#login=")) route.value = parse();
});

/** @param {string} path Such as "c/17ab" or "#/inbox". @param {{replace?: boolean}} [options] */
export function go(path, { replace = false } = {}) {
  const hash = `#/${path.replace(/^#?\/?/, "")}`;
  if (hash === location.hash) return;
  if (!replace) {
    location.hash = hash;
    return;
  }
  history.replaceState(null, "", hash);
  route.value = parse();
}

/** @param {...(string | number)} words @returns {string} The link to a screen. */
export function href(...words) {
  return `#/${words.map((word) => encodeURIComponent(word)).join("/")}`;
}
