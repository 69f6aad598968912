// Markdown to nodes, a piece at a time. No text becomes HTML; only web and mail links can be followed.
import * as smd from "./vendor/smd.js";

const SAFE = /^(https?:\/\/|mailto:)/i;
const BLOCKS = new Set(["P", "LI", "TD", "TH", "BLOCKQUOTE", "H1", "H2", "H3", "H4", "H5", "H6"]);
const MAX_DEPTH = 20;
/** Longer texts are shown as they are: no person reads them as a page. */
export const MAX_CHARS = 200_000;

/** @param {string} target @returns {URL | null} The address, if it may be followed. */
export function safeLink(target) {
  if (!SAFE.test(target)) return null;
  try {
    return new URL(target);
  } catch {
    return null;
  }
}

/** @param {HTMLElement} node @param {string} target A link's target is always visible: its host, or all of it if it is no link. */
function setTarget(node, target) {
  const url = safeLink(target);
  if (!url) {
    if (!(node.textContent || "").includes(target)) node.append(note(` (${target.slice(0, 500)})`));
    return;
  }
  node.setAttribute("href", url.href);
  node.setAttribute("rel", "noopener noreferrer");
  node.setAttribute("target", "_blank");
  node.title = url.href;
  const place = url.protocol === "mailto:" ? url.pathname : url.host;
  if (!(node.textContent || "").includes(place)) node.append(note(` (${place})`));
}

/** @param {string} text */
function note(text) {
  const span = document.createElement("span");
  span.className = "target";
  span.dir = "ltr";
  span.textContent = text;
  return span;
}

/** @param {Element} parent @returns {HTMLElement} The code element of a block with a copy button. */
export function codeBlock(parent) {
  const box = document.createElement("div");
  box.className = "code";
  const head = document.createElement("div");
  head.className = "code-head";
  const name = document.createElement("span");
  const copy = document.createElement("button");
  copy.type = "button";
  copy.className = "copy";
  copy.dataset.act = "copy-code";
  copy.textContent = "Copy";
  head.append(name, copy);
  const pre = document.createElement("pre");
  pre.tabIndex = 0;
  const code = document.createElement("code");
  pre.append(code);
  box.append(head, pre);
  parent.append(box);
  return code;
}

/** Colour the lines of a unified diff. @param {HTMLElement} code */
export function colourDiff(code) {
  const lines = (code.textContent || "").split("\n");
  if (lines.length > 5_000) return;
  code.replaceChildren(
    ...lines.map((line, index) => {
      const span = document.createElement("span");
      const kind = /^(\+\+\+|---|diff |index )/.test(line) ? "file" : { "+": "added", "-": "removed", "@": "place" }[line[0] ?? ""];
      if (kind) span.className = kind;
      span.textContent = index < lines.length - 1 ? `${line}\n` : line;
      return span;
    }),
  );
  code.classList.add("diff");
}

/** @typedef {{nodes: HTMLElement[], index: number, targets: Map<HTMLElement, string>}} Data */

/** @param {HTMLElement} root @returns {import("./vendor/smd.js").Any_Renderer} */
function renderer(root) {
  const plain = smd.default_renderer(root);
  /** @param {Data} data @param {any} type */
  const addToken = (data, type) => {
    const parent = /** @type {HTMLElement} */ (data.nodes[data.index]);
    if (type === smd.DOCUMENT) return;
    if (type === smd.CODE_FENCE || type === smd.CODE_BLOCK) data.nodes[++data.index] = codeBlock(parent);
    else if (type === smd.IMAGE || type === smd.EQUATION_BLOCK || type === smd.EQUATION_INLINE) {
      const node = document.createElement(type === smd.IMAGE ? "a" : "code");
      if (type === smd.IMAGE) node.className = "picture-link";
      data.nodes[++data.index] = parent.appendChild(node);
    } else if (type === smd.TABLE) {
      const box = document.createElement("div");
      box.className = "table-scroll";
      box.tabIndex = 0;
      parent.append(box);
      data.nodes[++data.index] = box.appendChild(document.createElement("table"));
    } else {
      smd.default_add_token(/** @type {any} */ (data), type);
      const made = /** @type {HTMLElement} */ (data.nodes[data.index]);
      if (BLOCKS.has(made.tagName)) made.dir = "auto";
    }
  };
  return {
    data: { nodes: [root], index: 0, targets: new Map() },
    add_token: addToken,
    end_token: (/** @type {Data} */ data) => {
      const node = /** @type {HTMLElement} */ (data.nodes[data.index]);
      const target = data.targets.get(node);
      if (target !== undefined) setTarget(node, target);
      else if (node.tagName === "CODE" && /^(diff|patch)$/.test(node.dataset.language ?? "")) colourDiff(node);
      plain.end_token(/** @type {any} */ (data));
    },
    add_text: (/** @type {Data} */ data, /** @type {string} */ text) => {
      const node = /** @type {HTMLElement} */ (data.nodes[data.index]);
      const last = node.lastChild;
      if (last instanceof Text && last.length < 4_000) last.appendData(text);
      else node.append(text);
    },
    set_attr: (/** @type {Data} */ data, /** @type {any} */ type, /** @type {string} */ value) => {
      const node = /** @type {HTMLElement} */ (data.nodes[data.index]);
      if (type === smd.HREF || type === smd.SRC) data.targets.set(node, value);
      else if (type === smd.LANG) {
        node.dataset.language = value;
        const name = node.parentElement?.previousElementSibling?.firstElementChild;
        if (name) name.textContent = value.slice(0, 40);
      } else if (type === smd.CHECKED) node.setAttribute("checked", "");
      else if (type === smd.START && /^\d{1,9}$/.test(value)) node.setAttribute("start", value);
    },
  };
}

/** Writes Markdown into `root` as it arrives. */
export class MarkdownWriter {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.text = "";
    this.#root = root;
    this.#renderer = renderer(root);
    this.#parser = smd.parser(this.#renderer);
  }

  #root;
  #renderer;
  #parser;
  #isPlain = false;

  /** @param {string} piece */
  write(piece) {
    this.text += piece;
    if (this.#isPlain) this.#root.append(piece);
    else if (this.text.length > MAX_CHARS) this.#showPlain();
    else this.#parse(() => smd.parser_write(this.#parser, piece));
  }

  end() {
    if (!this.#isPlain) this.#parse(() => smd.parser_end(this.#parser));
  }

  /** @param {() => void} act */
  #parse(act) {
    try {
      act();
    } catch {
      this.#showPlain();
    }
    if (this.#renderer.data.index > MAX_DEPTH) this.#showPlain();
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
