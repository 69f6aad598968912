// Runs in the frame of a diagram, which reaches neither the page nor the network: draws the text that the page sends.
addEventListener("message", ({ data, ports: [port] }) => draw(data, /** @type {MessagePort} */ (port)), { once: true });

/** @param {{text: string, dark: boolean}} given @param {MessagePort} port */
async function draw({ text, dark }, port) {
  const { mermaid } = /** @type {any} */ (globalThis);
  const fontFamily = "system-ui, sans-serif";
  mermaid.initialize({ startOnLoad: false, securityLevel: "strict", theme: dark ? "dark" : "neutral", fontFamily, suppressErrorRendering: true });
  try {
    const { svg } = await mermaid.render("diagram", text);
    const drawn = new DOMParser().parseFromString(svg, "text/html").body.firstElementChild;
    if (!drawn) throw new Error("nothing was drawn");
    document.body.append(drawn);
    const report = () => port.postMessage({ height: Math.ceil(drawn.getBoundingClientRect().height) });
    new ResizeObserver(report).observe(drawn);
    report();
  } catch (error) {
    port.postMessage({ problem: error instanceof Error ? error.message : String(error) });
  }
}
