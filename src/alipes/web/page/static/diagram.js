// Runs in the frame of a diagram, which reaches neither the page nor the network: draws the text that the page sends,
// again whenever its colours change.
addEventListener("message", ({ ports: [port] }) => listen(/** @type {MessagePort} */ (port)), { once: true });
addEventListener("click", (event) => event.preventDefault()); // a link leads nowhere: its page could not be shown here

/** @param {MessagePort} port */
function listen(port) {
  const report = () => {
    const drawn = document.querySelector("body > svg");
    if (drawn) port.postMessage({ height: Math.ceil(drawn.getBoundingClientRect().height) });
  };
  new ResizeObserver(report).observe(document.body);
  let drawing = Promise.resolve();
  port.onmessage = ({ data }) => (drawing = drawing.then(() => draw(data)).then(report, (error) => port.postMessage({ problem: error instanceof Error ? error.message : String(error) })));
}

/** @param {{text: string, dark: boolean, background: string}} given */
async function draw({ text, dark, background }) {
  const { mermaid } = /** @type {any} */ (globalThis);
  const fontFamily = "system-ui, sans-serif";
  const themeCSS = `.edgeLabel, .edgeLabel p, .labelBkg { background-color: ${background}; }`;
  mermaid.initialize({ startOnLoad: false, securityLevel: "strict", theme: dark ? "dark" : "neutral", themeCSS, fontFamily, suppressErrorRendering: true });
  const { svg } = await mermaid.render("diagram", text);
  const drawn = new DOMParser().parseFromString(svg, "text/html").body.firstElementChild;
  if (!drawn) throw new Error("nothing was drawn");
  document.querySelector("body > svg")?.remove();
  document.body.append(drawn);
}
