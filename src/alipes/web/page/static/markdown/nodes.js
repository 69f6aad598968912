// Nodes of Markdown's tokens. No text becomes HTML; only web and mail links can be followed.

/** @typedef {import("../vendor/markdown-it.js").Token} Token */

const SAFE = /^(https?:\/\/|mailto:)/i;
const BLOCKS = new Set(["P", "LI", "TD", "TH", "BLOCKQUOTE", "H1", "H2", "H3", "H4", "H5", "H6"]);

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
  const text = node.textContent || "";
  if (!url) {
    if (target && !text.includes(target)) node.append(note(` (${target.slice(0, 500)})`));
    return;
  }
  node.setAttribute("href", url.href);
  node.setAttribute("rel", "noopener noreferrer");
  node.setAttribute("target", "_blank");
  node.title = url.href;
  const place = url.protocol === "mailto:" ? decode(url.pathname) : url.host;
  if (!text.includes(place)) node.append(note(` (${place})`));
}

/** @param {string} address */
function decode(address) {
  try {
    return decodeURI(address);
  } catch {
    return address;
  }
}

/** @param {string} text */
function note(text) {
  const span = element("span", "target");
  span.dir = "ltr";
  span.textContent = text;
  return span;
}

/** @param {string} tag @param {string} [kind] */
function element(tag, kind) {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  if (BLOCKS.has(node.tagName)) node.dir = "auto";
  return node;
}

/** @param {Element} parent @returns {HTMLElement} The code element of a block with a copy button. */
export function codeBlock(parent) {
  const box = element("div", "code");
  const head = element("div", "code-head");
  const copy = /** @type {HTMLButtonElement} */ (element("button", "copy"));
  copy.type = "button";
  copy.dataset.act = "copy-code";
  copy.textContent = "Copy";
  head.append(element("span"), copy);
  const pre = element("pre");
  pre.tabIndex = 0;
  const code = element("code");
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

/** Where tokens become nodes: each opening token makes a node for the ones up to its closing token. */
class NodeBuilder {
  /** @param {Node} root */
  constructor(root) {
    this.#nodes = [root];
  }

  #nodes;
  /** @type {string[]} */
  #targets = [];

  get parent() {
    return /** @type {HTMLElement} */ (this.#nodes.at(-1));
  }

  /** @param {Token[]} tokens */
  add(tokens) {
    for (const token of tokens) {
      if (token.nesting === 1) this.#open(token);
      else if (token.nesting === -1) this.#close(token);
      else this.#addLeaf(token);
    }
  }

  /** @param {Token} token */
  #open(token) {
    if (token.hidden) return;
    const parent = this.parent;
    if (token.type === "link_open") this.#targets.push(token.attrGet("href") ?? "");
    const node = element(token.tag, token.type === "footnote_open" ? "footnote" : "");
    if (token.type === "table_open") {
      const box = element("div", "table-scroll");
      box.tabIndex = 0;
      parent.append(box);
      box.append(node);
    } else parent.append(node);
    if (token.type === "footnote_open") node.append(footnoteMark(token.info), " ");
    const start = String(token.attrGet("start") ?? "");
    if (start) {
      node.setAttribute("start", start);
      if (start.length > 2) node.style.paddingInlineStart = `${start.length + 1.5}ch`;
    }
    const align = /text-align:(\w+)/.exec(token.attrGet("style") ?? "");
    if (align) node.style.textAlign = /** @type {string} */ (align[1]);
    this.#nodes.push(node);
  }

  /** @param {Token} token */
  #close(token) {
    if (token.hidden) return;
    const node = /** @type {HTMLElement} */ (this.#nodes.pop());
    if (token.type === "link_close") setTarget(node, this.#targets.pop() ?? "");
  }

  /** @param {Token} token */
  #addLeaf(token) {
    switch (token.type) {
      case "inline":
        return this.#addInline(token);
      case "fence":
      case "code_block":
        return this.#addCode(token);
      case "image":
        return this.#addImage(token);
      case "code_inline":
        return this.#addText("code", "", token.content);
      case "maths":
      case "maths_block":
        return this.#addText("code", token.type === "maths" ? "maths" : "maths block", token.content);
      case "footnote_mark":
        return this.parent.append(footnoteMark(token.content));
      case "hr":
        return this.parent.append(element("hr"));
      case "hardbreak":
        return this.parent.append(element("br"));
      case "softbreak":
        return this.#write("\n");
      default:
        return this.#write(token.content);
    }
  }

  /** @param {string} tag @param {string} kind @param {string} text */
  #addText(tag, kind, text) {
    const node = element(tag, kind);
    node.textContent = text;
    this.parent.append(node);
  }

  /** @param {string} text */
  #write(text) {
    const last = this.parent.lastChild;
    if (last instanceof Text) last.appendData(text);
    else if (text) this.parent.append(text);
  }

  /** @param {Token} token */
  #addInline(token) {
    const parent = this.parent;
    const children = token.children ?? [];
    const first = children[0];
    const box = parent.closest("li") && !parent.textContent && first?.type === "text" && /^\[([ xX])\](?=\s)/.exec(first.content);
    if (box && first) {
      const input = /** @type {HTMLInputElement} */ (element("input"));
      input.type = "checkbox";
      input.disabled = true;
      if (box[1] !== " ") input.setAttribute("checked", "");
      parent.append(input);
      first.content = first.content.slice(3);
    }
    this.add(children);
  }

  /** @param {Token} token */
  #addCode(token) {
    const code = codeBlock(this.parent);
    code.textContent = token.content;
    const language = /^\S*/.exec(token.info.trim())?.[0] ?? "";
    if (!language) return;
    code.dataset.language = language;
    const name = code.parentElement?.previousElementSibling?.firstElementChild;
    if (name) name.textContent = language.slice(0, 40);
    if (/^(diff|patch)$/.test(language)) colourDiff(code);
  }

  /** @param {Token} token */
  #addImage(token) {
    const link = element("a", "picture-link");
    link.textContent = plainText(token.children ?? []);
    setTarget(link, token.attrGet("src") ?? "");
    this.parent.append(link);
  }
}

/** @param {Token[]} tokens @returns {string} */
function plainText(tokens) {
  return tokens.map((token) => (token.type === "image" ? plainText(token.children ?? []) : /break$/.test(token.type) ? "\n" : token.content)).join("");
}

/** @param {string} name */
function footnoteMark(name) {
  const mark = element("sup", "footnote-mark");
  mark.textContent = name;
  return mark;
}

/** @param {Token[]} tokens @returns {ChildNode[]} */
export function buildNodes(tokens) {
  const fragment = document.createDocumentFragment();
  new NodeBuilder(fragment).add(tokens);
  return [...fragment.childNodes];
}

/** Make a node equal to another one, and keep all of it that is equal already: what is selected stays so.
 * @param {ChildNode} old @param {ChildNode} wanted @returns {ChildNode} The node that is there then. */
export function updateNode(old, wanted) {
  if (old.isEqualNode(wanted)) return old;
  if (old instanceof Text && wanted instanceof Text) {
    if (wanted.data.startsWith(old.data)) old.appendData(wanted.data.slice(old.length));
    else old.data = wanted.data;
    return old;
  }
  if (old instanceof Element && wanted instanceof Element && old.cloneNode().isEqualNode(wanted.cloneNode())) {
    updateChildren(old, [...wanted.childNodes]);
    return old;
  }
  old.replaceWith(wanted);
  return wanted;
}

/** @param {Element} parent @param {ChildNode[]} wanted */
function updateChildren(parent, wanted) {
  const old = [...parent.childNodes];
  wanted.forEach((node, index) => {
    const there = old[index];
    if (there) updateNode(there, node);
    else parent.append(node);
  });
  for (const node of old.slice(wanted.length)) node.remove();
}
