// CommonMark with the extensions of GitHub, footnotes in their place and mathematics, as tokens of markdown-it.
import { ParserBlock, ParserInline, Token, helpers, unescapeAll } from "../vendor/markdown-it.js";
import { findAddress, findUrl } from "./addresses.js";

/** @typedef {import("../vendor/markdown-it.js").StateInline} StateInline */
/** @typedef {import("../vendor/markdown-it.js").StateBlock} StateBlock */
/** @typedef {{references: Record<string, {href: string, title: string}>}} Env */

const MAX_NESTING = 100;
const MAX_LEVEL = 50;
const ONE_TILDE = 0x7e;
const TWO_TILDES = 0x7e7e;
const FOOTNOTE = /^\[\^([^\]\s]{1,100})\]:[ \t]*/;
const MATHS = [
  ["$$", "$$"],
  ["\\[", "\\]"],
];

const block = new ParserBlock();
const inline = new ParserInline();
const md = {
  options: { html: false, breaks: false, linkify: false, maxNesting: MAX_NESTING },
  block,
  inline,
  helpers,
  // what may be followed is decided when nodes are made, and the browser encodes it
  validateLink: () => true,
  normalizeLink: (/** @type {string} */ url) => url,
  normalizeLinkText: (/** @type {string} */ url) => url,
};

const INTERRUPT = { alt: ["paragraph", "reference", "blockquote", "list"] };
block.ruler.before("fence", "maths", addMathsBlock, INTERRUPT);
block.ruler.before("reference", "footnote", addFootnote, INTERRUPT);
inline.ruler.before("escape", "maths", addMaths);
inline.ruler.before("linkify", "url", addUrl);
inline.ruler.before("link", "footnote_mark", addFootnoteMark);
inline.ruler.at("strikethrough", scanTildes);
inline.ruler2.at("strikethrough", (state) => {
  strike(state, state.delimiters);
  for (const each of state.tokens_meta) if (each?.delimiters) strike(state, each.delimiters);
});
inline.ruler2.push("addresses", (state) => {
  state.tokens.splice(0, state.tokens.length, ...addAddresses(state.tokens));
});

/** @param {string} text @param {Env} env Definitions of links found before; those of the text are added. @returns {Token[]} Raises if it is nested too
 * deep to be shown. */
export function parse(text, env) {
  /** @type {Token[]} */
  const tokens = [];
  block.parse(text, md, env, tokens);
  if (tokens.some((token) => token.level > MAX_LEVEL)) throw new RangeError("nested too deep");
  for (const token of tokens) {
    if (token.type === "inline") inline.parse(token.content, md, env, (token.children = []));
    else if (token.type === "fence") token.info = unescapeAll(token.info);
  }
  return tokens;
}

/** @param {StateBlock} state @param {number} line */
const lineAt = (state, line) =>
  state.src.slice(/** @type {number} */ (state.bMarks[line]) + /** @type {number} */ (state.tShift[line]), state.eMarks[line]);

/** @param {StateBlock} state @param {number} line */
const isCode = (state, line) => /** @type {number} */ (state.sCount[line]) - state.blkIndent >= 4;

/** @param {string} line @returns {[string, string] | null} How a formula begins and ends. */
function mathsFence(line) {
  for (const [open, close] of MATHS) if (line.startsWith(open)) return [open, close];
  const begin = /^\\begin\{([a-zA-Z]+\*?)\}/.exec(line);
  return begin ? ["", `\\end{${begin[1]}}`] : null;
}

/** @type {import("../vendor/markdown-it.js").BlockRule} A formula in lines of its own. */
function addMathsBlock(state, startLine, endLine, silent) {
  if (isCode(state, startLine)) return false;
  const first = lineAt(state, startLine);
  const fence = mathsFence(first);
  if (!fence) return false;
  const [open, close] = fence;
  let text = first.slice(open.length);
  let next = startLine + 1;
  while (!text.trimEnd().endsWith(close)) {
    if (text.includes(close) || next >= endLine || !lineAt(state, next)) return false;
    if (/** @type {number} */ (state.sCount[next]) < state.blkIndent) return false;
    text += `\n${lineAt(state, next++)}`;
  }
  const formula = open ? text.trimEnd().slice(0, -close.length) : text;
  if (!formula.trim() || (open && formula.includes(close))) return false;
  if (silent) return true;
  state.line = next;
  const token = state.push("maths_block", "", 0);
  token.content = formula.trim();
  token.markup = text;
  token.map = [startLine, next];
  return true;
}

/** @type {import("../vendor/markdown-it.js").InlineRule} */
function addMaths(state, silent) {
  const rest = state.src.slice(state.pos, state.posMax);
  const found = /^\\\(([^]+?)\\\)|^\\\[([^]+?)\\\]|^\$\$([^$]+?)\$\$|^\$(?![\s$])([^$\n]*?[^\s$\\])\$(?![\p{L}\p{N}$])/u.exec(rest);
  const formula = found?.slice(1).find((each) => each !== undefined);
  if (!found || !/[\p{L}\p{N}]/u.test(formula ?? "")) return false;
  if (found[4] !== undefined && /[\p{L}\p{N}$\\]$/u.test(state.src.slice(0, state.pos))) return false;
  if (!silent) {
    const token = state.push("maths", "", 0);
    token.content = (formula ?? "").trim();
    token.markup = found[0];
  }
  state.pos += found[0].length;
  return true;
}

/** @type {import("../vendor/markdown-it.js").BlockRule} */
function addFootnote(state, startLine, endLine, silent) {
  if (isCode(state, startLine)) return false;
  const found = FOOTNOTE.exec(lineAt(state, startLine));
  if (!found) return false;
  if (silent) return true;
  let next = startLine + 1;
  const terminators = state.md.block.ruler.getRules("paragraph");
  while (next < endLine && lineAt(state, next) && !FOOTNOTE.test(lineAt(state, next))) {
    if (!isCode(state, next) && terminators.some((/** @type {any} */ rule) => rule(state, next, endLine, true))) break;
    next++;
  }
  state.line = next;
  const open = state.push("footnote_open", "p", 1);
  open.map = [startLine, next];
  open.info = found[1] ?? "";
  const text = state.push("inline", "", 0);
  text.content = state.getLines(startLine, next, state.blkIndent, false).trim().replace(FOOTNOTE, "");
  text.map = [startLine, next];
  text.children = [];
  state.push("footnote_close", "p", -1);
  return true;
}

/** @type {import("../vendor/markdown-it.js").InlineRule} */
function addFootnoteMark(state, silent) {
  const found = /^\[\^([^\]\s[]{1,100})\](?!\()/.exec(state.src.slice(state.pos, state.pos + 110));
  if (!found) return false;
  if (!silent) state.push("footnote_mark", "", 0).content = found[1] ?? "";
  state.pos += found[0].length;
  return true;
}

/** @type {import("../vendor/markdown-it.js").InlineRule} An address with its scheme, without any markup. */
function addUrl(state, silent) {
  const found = state.linkLevel ? null : findUrl(state.src, state.pos, state.posMax);
  if (!found || !state.pending.endsWith(state.src.slice(found.start, state.pos))) return false;
  if (!silent) {
    state.pending = state.pending.slice(0, found.start - state.pos);
    pushLink(state, found.text, found.text);
  }
  state.pos = found.start + found.text.length;
  return true;
}

/** @param {StateInline} state @param {string} href @param {string} text */
function pushLink(state, href, text) {
  state.push("link_open", "a", 1).attrs = [["href", href]];
  state.push("text", "", 0).content = text;
  state.push("link_close", "a", -1);
}

/** @type {import("../vendor/markdown-it.js").InlineRule} One tilde or two on both sides strike a text out. */
function scanTildes(state, silent) {
  if (silent || state.src.charCodeAt(state.pos) !== ONE_TILDE) return false;
  const scanned = state.scanDelims(state.pos, true);
  state.push("text", "", 0).content = "~".repeat(scanned.length);
  state.pos += scanned.length;
  if (scanned.length > 2) return true;
  state.delimiters.push({
    marker: scanned.length === 1 ? ONE_TILDE : TWO_TILDES,
    length: 0,
    token: state.tokens.length - 1,
    end: -1,
    open: scanned.can_open,
    close: scanned.can_close,
  });
  return true;
}

/** @param {StateInline} state @param {import("../vendor/markdown-it.js").Delimiter[]} delimiters */
function strike(state, delimiters) {
  for (const start of delimiters) {
    if ((start.marker !== ONE_TILDE && start.marker !== TWO_TILDES) || start.end === -1) continue;
    const end = /** @type {import("../vendor/markdown-it.js").Delimiter} */ (delimiters[start.end]);
    for (const [at, type, nesting] of /** @type {const} */ ([[start.token, "s_open", 1], [end.token, "s_close", -1]])) {
      const token = /** @type {Token} */ (state.tokens[at]);
      Object.assign(token, { type, tag: "s", nesting, content: "" });
    }
  }
}

/** @param {Token[]} tokens @returns {Token[]} With links for www addresses and mail addresses outside of links. */
function addAddresses(tokens) {
  /** @type {Token[]} */
  const result = [];
  let links = 0;
  for (const token of tokens) {
    if (token.type === "link_open") links++;
    else if (token.type === "link_close") links--;
    if (token.type !== "text" || links || !/www\.|@/i.test(token.content)) result.push(token);
    else result.push(...splitAddresses(token));
  }
  return result;
}

/** @param {Token} token @returns {Token[]} */
function splitAddresses(token) {
  const parts = [];
  let rest = token.content;
  for (let found = findAddress(rest); found; found = findAddress(rest)) {
    if (found.start) parts.push(makeToken("text", 0, rest.slice(0, found.start)));
    const open = makeToken("link_open", 1, "");
    open.attrs = [["href", found.href]];
    parts.push(open, makeToken("text", 0, found.text), makeToken("link_close", -1, ""));
    rest = rest.slice(found.start + found.text.length);
  }
  if (rest || !parts.length) parts.push(makeToken("text", 0, rest));
  return parts;
}

/** @param {string} type @param {-1 | 0 | 1} nesting @param {string} content */
function makeToken(type, nesting, content) {
  const token = new Token(type, nesting ? "a" : "", nesting);
  token.content = content;
  return token;
}
