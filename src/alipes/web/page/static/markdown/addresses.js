// Web and mail addresses that stand in a text without any markup, by the rules of GitHub.

/** @typedef {{start: number, text: string, href: string}} Found */

const SCHEME = /(?:https?|ftp)$/i;
const MAIL_SCHEME = /(?:mailto|xmpp)$/i;
const BEFORE = /[\s*_~(]$/;
const WWW = /(?:^|[\s*_~(])(www\.[^\s<]+)/gi;
const MAIL = /[A-Za-z0-9._+-]+@[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+/g;

/** @param {string} host With at least one dot, and no underscore in its last two parts; `short`: without a dot too. */
function isHost(host, short = false) {
  const parts = host.split(".");
  return (short || parts.length > 1) && parts.every((part) => /^[\p{L}\p{N}_-]+$/u.test(part)) && !parts.slice(-2).some((part) => part.includes("_"));
}

/** @param {string} text @returns {string} Without punctuation at its end that belongs to the sentence. */
function trimEnd(text) {
  for (;;) {
    const entity = /&[A-Za-z0-9]+;$/.exec(text);
    if (entity) text = text.slice(0, entity.index);
    else if (/[?!.,:*_~'"]$/.test(text)) text = text.slice(0, -1);
    else if (text.endsWith(")") && text.split(")").length > text.split("(").length) text = text.slice(0, -1);
    else return text;
  }
}

/** @param {string} text @param {number} colon Where a colon may be that ends a scheme. @param {number} end @returns {Found | null} */
export function findUrl(text, colon, end) {
  if (text[colon] !== ":") return null;
  const before = text.slice(Math.max(0, colon - 10), colon);
  const scheme = SCHEME.exec(before) ?? MAIL_SCHEME.exec(before);
  if (!scheme) return null;
  const start = colon - scheme[0].length;
  if (start > 0 && !BEFORE.test(text.slice(0, start))) return null;
  const whole = (/^[^\s<]+/.exec(text.slice(start, end)) ?? [""])[0];
  if (MAIL_SCHEME.test(scheme[0])) return findMailUrl(start, whole, scheme[0]);
  const rest = whole.slice(scheme[0].length + 1);
  if (!rest.startsWith("//")) return null;
  const found = trimEnd(whole);
  const host = (/^[^/?#:]*/.exec(found.slice(scheme[0].length + 3)) ?? [""])[0];
  const name = host.slice(host.lastIndexOf("@") + 1);
  const isAddress = /^\[[0-9a-f:.]+\]/i.test(found.slice(scheme[0].length + 3));
  return isAddress || isHost(name, true) ? { start, text: found, href: found } : null;
}

/** @param {number} start @param {string} whole @param {string} scheme @returns {Found | null} */
function findMailUrl(start, whole, scheme) {
  const place = scheme.toLowerCase() === "xmpp" ? "(?:/[A-Za-z0-9@.]+)?" : "";
  const found = new RegExp(`^${scheme}:${MAIL.source}${place}`).exec(whole);
  const text = found && found[0].replace(/\.+$/, "");
  return text && !/[-_]$/.test(text) ? { start, text, href: text } : null;
}

/** @param {string} text @returns {Found | null} The first www address or mail address. */
export function findAddress(text) {
  const found = [findWww(text), findMail(text)].filter((each) => each !== null);
  return found.sort((a, b) => a.start - b.start)[0] ?? null;
}

/** @param {string} text @returns {Found | null} */
function findWww(text) {
  for (const match of text.matchAll(WWW)) {
    const found = trimEnd(match[1] ?? "");
    const host = (/^[^/?#:]*/.exec(found) ?? [""])[0];
    if (isHost(host)) return { start: match.index + match[0].length - (match[1] ?? "").length, text: found, href: `http://${found}` };
  }
  return null;
}

/** @param {string} text @returns {Found | null} */
function findMail(text) {
  for (const match of text.matchAll(MAIL)) {
    const found = match[0];
    const after = text[match.index + found.length] ?? "";
    if (!/[-_]$/.test(found) && after !== "/") return { start: match.index, text: found, href: `mailto:${found}` };
  }
  return null;
}
