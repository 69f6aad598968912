// The browser's storage for this origin. A browser that refuses it loses settings and drafts, nothing else.

/** @param {string} name @returns {string} */
export function load(name) {
  try {
    return localStorage.getItem(`alipes.${name}`) || "";
  } catch {
    return "";
  }
}

/** @param {string} name @param {string} value Empty: remove it. @returns {boolean} Whether it was stored. */
export function save(name, value) {
  try {
    if (value) localStorage.setItem(`alipes.${name}`, value);
    else localStorage.removeItem(`alipes.${name}`);
    return true;
  } catch {
    return false;
  }
}

/** @param {string} prefix @returns {string[]} The stored names that start with the prefix. */
export function names(prefix) {
  try {
    const start = `alipes.${prefix}`;
    return Object.keys(localStorage).filter((name) => name.startsWith(start)).map((name) => name.slice(7));
  } catch {
    return [];
  }
}

/** @returns {string} Sixteen random bytes. */
export function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
