// Colours of code, formulas and diagrams, added to finished blocks. What they need is loaded when a text has one.

const MAX_CODE = 50_000;

/** @param {ChildNode[]} nodes Finished blocks. */
export function typeset(nodes) {
  for (const node of nodes) {
    if (!(node instanceof Element)) continue;
    for (const code of node.querySelectorAll("code[data-language]:not(.diff)")) void colourCode(/** @type {HTMLElement} */ (code));
    const formulas = node.matches(".maths") ? [node] : node.querySelectorAll(".maths");
    for (const formula of formulas) void showFormula(/** @type {HTMLElement} */ (formula));
  }
}

/** @param {HTMLElement} code */
async function colourCode(code) {
  const text = code.textContent ?? "";
  if (code.dataset.language === "mermaid") return (await import("./diagrams.js")).showDiagram(code);
  if (text.length > MAX_CODE) return;
  const { colour } = await import("../vendor/highlight.js");
  const coloured = colour(text, code.dataset.language ?? "");
  if (coloured && code.textContent === text) code.replaceChildren(coloured);
}

/** Shows it as MathML; what is no formula after all stays as it was written. @param {HTMLElement} formula */
async function showFormula(formula) {
  const source = formula.textContent ?? "";
  const { default: temml } = await import("../vendor/temml.js");
  const shown = document.createElement("span");
  try {
    temml.render(source, shown, { displayMode: formula.classList.contains("block"), throwOnError: true, maxExpand: 200 });
  } catch {
    return;
  }
  if (formula.textContent !== source) return;
  formula.title = source;
  formula.classList.add("shown");
  formula.replaceChildren(...shown.childNodes);
}
