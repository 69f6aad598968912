// Diagrams of Mermaid: drawn in a sandboxed frame of their own, below the head of the block with their source.

const MAX_TEXT = 20_000;
const MAX_HEIGHT = 4_000;

/** Draw the diagram of a block of code; what is no diagram stays as it was written. @param {HTMLElement} code */
export function showDiagram(code) {
  const box = /** @type {HTMLElement | null} */ (code.closest(".code"));
  const text = code.textContent ?? "";
  if (!box || box.querySelector("iframe") || !text.trim() || text.length > MAX_TEXT) return;
  const frame = document.createElement("iframe");
  frame.title = "Diagram";
  frame.className = "diagram";
  frame.setAttribute("sandbox", "allow-scripts");
  frame.setAttribute("credentialless", "");
  frame.loading = "lazy";
  frame.src = "diagram";
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = ({ data }) => (data.problem ? fail(box, frame, String(data.problem)) : show(box, frame, Number(data.height)));
  frame.addEventListener("load", () => {
    frame.contentWindow?.postMessage(null, "*", [port2]);
    const paint = () => {
      if (frame.isConnected) port1.postMessage({ text, dark: isDark(), background: getComputedStyle(box).backgroundColor });
      else themes.delete(paint);
    };
    themes.add(paint);
    paint();
  }, { once: true });
  box.querySelector("pre")?.before(frame);
}

/** Each draws a diagram in the colours of the page. @type {Set<() => void>} */
const themes = new Set();
const repaint = () => themes.forEach((paint) => paint());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme"] });

/** @param {HTMLElement} box @param {HTMLIFrameElement} frame @param {number} height */
function show(box, frame, height) {
  frame.style.height = `${Math.min(height, MAX_HEIGHT)}px`;
  if (box.classList.contains("drawn")) return;
  box.classList.add("drawn");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Source";
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => button.setAttribute("aria-pressed", String(box.classList.toggle("with-source"))));
  box.querySelector(".copy")?.before(button);
}

/** @param {HTMLElement} box @param {HTMLIFrameElement} frame @param {string} problem */
function fail(box, frame, problem) {
  frame.remove();
  box.classList.remove("drawn");
  const note = document.createElement("p");
  note.className = "diagram-problem";
  note.dir = "auto";
  note.textContent = `This diagram cannot be drawn: ${problem.slice(0, 300)}`;
  box.append(note);
}

/** Whether the text of the page is bright. */
function isDark() {
  const [red = 0, green = 0, blue = 0] = (getComputedStyle(document.body).color.match(/[\d.]+/g) ?? []).map(Number);
  return red + green + blue > 384;
}
