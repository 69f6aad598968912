// Markdown to nodes, a piece at a time. A block that is finished is not touched again, unless a link in it is defined later.
import { addEntities } from "./vendor/markdown-it.js";
import { buildNodes, updateNode } from "./markdown/nodes.js";
import { parse } from "./markdown/parser.js";
import { typeset } from "./markdown/typeset.js";

export { codeBlock, colourDiff, safeLink } from "./markdown/nodes.js";

/** @typedef {import("./vendor/markdown-it.js").Token} Token */
/** @typedef {import("./markdown/parser.js").Env} Env */
/** @typedef {{text: string, nodes: ChildNode[]}} Block */

/** Longer texts are shown as they are: no person reads them as a page. */
export const MAX_CHARS = 200_000;
const ENTITY = /&[A-Za-z][A-Za-z0-9]*;/;
/** @type {Promise<void> | null} */
let entities = null;

/** Loads the names of characters, which few texts use. @returns {Promise<void>} */
const loadEntities = () => (entities ??= import("./vendor/entities.js").then((module) => addEntities(module.characterEntities)));

/** @param {Token[]} tokens @returns {Token[][]} The tokens of each outermost block. */
function splitBlocks(tokens) {
  /** @type {Token[][]} */
  const blocks = [];
  for (const token of tokens) {
    if (token.level === 0 && token.nesting !== -1) blocks.push([]);
    blocks.at(-1)?.push(token);
  }
  return blocks;
}

/** @param {string} text @param {number} line @returns {number} */
function lineStart(text, line) {
  let at = 0;
  while (line--) at = text.indexOf("\n", at) + 1 || text.length;
  return at;
}

/** Writes Markdown into `root` as it arrives. */
export class MarkdownWriter {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.text = "";
    this.#root = root;
  }

  #root;
  /** The text of blocks that may still change. */
  #tail = "";
  /** @type {ChildNode[]} Their nodes. */
  #live = [];
  /** @type {Env} The definitions of finished blocks. */
  #env = { references: {} };
  /** @type {Block[]} Finished blocks that a definition or the names of characters may change. */
  #open = [];
  #isPlain = false;
  #hasEnded = false;
  #endsWithReturn = false;
  #waitsForEntities = false;

  /** @param {string} piece */
  write(piece) {
    this.text += piece;
    if (this.#isPlain) return this.#root.append(piece);
    if (this.text.length > MAX_CHARS) return this.#showPlain();
    const first = this.#endsWithReturn && piece.startsWith("\n") ? 1 : 0;
    this.#endsWithReturn = piece.endsWith("\r");
    this.#tail += piece.slice(first).replace(/\r\n?/g, "\n").replaceAll("\0", "\ufffd");
    this.#attempt(() => {
      if (piece.includes("\n") || piece.includes("\r")) this.#settle();
      this.#showTail();
    });
    this.#awaitEntities();
  }

  end() {
    this.#attempt(() => {
      this.#define(this.#tail);
      this.#hasEnded = true;
      typeset(this.#live);
    });
  }

  /** Show the text as it is if it cannot be shown otherwise. @param {() => void} act */
  #attempt(act) {
    if (this.#isPlain) return;
    try {
      act();
    } catch {
      this.#showPlain();
    }
  }

  /** Take blocks out of the tail that no further line can change: all but the last one of the complete lines. */
  #settle() {
    const complete = this.#tail.slice(0, this.#tail.lastIndexOf("\n") + 1);
    const blocks = splitBlocks(parse(complete, { references: { ...this.#env.references } }));
    const last = blocks.at(-2)?.[0]?.map?.[1];
    if (last === undefined) return;
    const cut = lineStart(complete, last);
    const text = complete.slice(0, cut);
    this.#define(text);
    for (const block of splitBlocks(parse(text, { references: { ...this.#env.references } }))) {
      const nodes = this.#replace(this.#live.splice(0, 1), buildNodes(block));
      const [from, to] = block[0]?.map ?? [0, 0];
      const source = text.slice(lineStart(text, from), lineStart(text, to));
      if (/[[&]/.test(source)) this.#open.push({ text: source, nodes });
      typeset(nodes);
    }
    this.#tail = this.#tail.slice(cut);
  }

  /** Remember the definitions of a text, and use new ones in finished blocks. @param {string} text */
  #define(text) {
    const known = Object.keys(this.#env.references).length;
    if (text.includes("]:")) parse(text, this.#env);
    if (Object.keys(this.#env.references).length > known) this.#showAgain();
  }

  #showAgain() {
    for (const block of this.#open) {
      block.nodes = this.#replace(block.nodes, buildNodes(parse(block.text, { references: { ...this.#env.references } })));
      typeset(block.nodes);
    }
  }

  #showTail() {
    this.#live = this.#replace(this.#live, buildNodes(parse(this.#tail, { references: { ...this.#env.references } })));
  }

  /** @param {ChildNode[]} old @param {ChildNode[]} wanted @returns {ChildNode[]} The nodes that stand there then. */
  #replace(old, wanted) {
    const next = old.at(-1)?.nextSibling ?? this.#live.find((node) => !old.includes(node)) ?? null;
    const kept = wanted.map((node, index) => {
      const there = old[index];
      return there ? updateNode(there, node) : this.#root.insertBefore(node, next);
    });
    for (const node of old.slice(wanted.length)) node.remove();
    return kept;
  }

  /** Show blocks again once names of characters are known, if one is used. */
  #awaitEntities() {
    if (this.#waitsForEntities || !ENTITY.test(this.#tail)) return;
    this.#waitsForEntities = true;
    const show = () => {
      this.#showAgain();
      this.#showTail();
      if (this.#hasEnded) typeset(this.#live);
    };
    loadEntities().then(() => this.#attempt(show), () => {}); // without them a name stays as it was written
  }

  #showPlain() {
    this.#isPlain = true;
    this.#root.classList.add("plain");
    this.#root.replaceChildren(this.text);
  }
}

/** @param {HTMLElement} root @param {string} text */
export function writeMarkdown(root, text) {
  const writer = new MarkdownWriter(root);
  writer.write(text);
  writer.end();
}
