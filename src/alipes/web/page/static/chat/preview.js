// Pictures in full size, and files of a message: looked at here if they are texts or pictures, and saved.
import { html, render, useEffect, useState } from "../vendor/preact.js";
import { fetchBlob } from "../api.js";
import { Button, CodeBlock, Dialog, Spinner, formatCount, formatSize } from "../ui.js";
import { make } from "./nodes.js";

const PICTURES = [["\x89PNG", "image/png"], ["\xff\xd8\xff", "image/jpeg"], ["GIF8", "image/gif"], ["RIFF", "image/webp"]];
const MAX_CHARS = 200_000;

/** Show a picture of the conversation in full size. @param {HTMLElement} button */
export function enlarge(button) {
  const picture = /** @type {HTMLImageElement | null} */ (button.querySelector("img"));
  const dialog = /** @type {HTMLDialogElement} */ (make("dialog", "enlarged"));
  const image = document.createElement("img");
  image.src = picture?.src ?? "";
  image.alt = "Picture";
  const bar = make("div", "enlarged-bar");
  const save = () => saveUrl(image.src, "picture");
  render(html`<${Button} icon="download" label="Save the picture" onClick=${save} /><${Button} icon="close" label="Close" onClick=${() => dialog.close()} />`, bar);
  dialog.setAttribute("aria-label", "Picture");
  dialog.append(image, bar);
  dialog.addEventListener("click", (event) => bar.contains(/** @type {Node} */ (event.target)) || dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** Show a file of a message in a dialog. @param {string} path Where the server has it. @param {string} name */
export function showFile(path, name) {
  const box = make("div");
  document.body.append(box);
  const close = () => {
    render(null, box);
    box.remove();
  };
  render(html`<${FileDialog} path=${path} name=${name} onClose=${close} />`, box);
}

/** @typedef {{blob: Blob, text?: string, picture?: string}} Shown */

/** @param {{path: string, name: string, onClose: () => void}} props */
function FileDialog({ path, name, onClose }) {
  const [shown, setShown] = useState(/** @type {Shown | null} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const loading = fetchBlob(path).then(readFile);
    loading.then(setShown, (error) => setProblem(error.message));
    return () => {
      loading.then(({ picture }) => picture && URL.revokeObjectURL(picture), () => {});
    };
  }, []);
  const save = () => {
    const url = URL.createObjectURL(/** @type {Shown} */ (shown).blob);
    saveUrl(url, name);
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  };
  return html`<${Dialog} title=${name} wide class="file-preview" onClose=${onClose} actions=${shown && html`
    <span class="muted fill">${formatSize(shown.blob.size)}</span><${Button} kind="primary" icon="download" autofocus onClick=${save}>Download<//>`}>
    ${problem ? html`<p class="problem" role="alert" dir="auto">${problem}</p>` : !shown ? html`<${Spinner} />` : html`<${Preview} ...${shown} />`}<//>`;
}

/** @param {Shown} props */
function Preview({ text, picture }) {
  if (picture) return html`<img src=${picture} alt="Picture" />`;
  if (text === undefined) return html`<p class="muted">This kind of file cannot be shown here. Download it to open it.</p>`;
  return html`<${CodeBlock} text=${text.slice(0, MAX_CHARS) || "(empty)"} label="Text" />
    ${text.length > MAX_CHARS && html`<p class="muted small">These are the first ${formatCount(MAX_CHARS)} of ${formatCount(text.length)} characters.</p>`}`;
}

/** What can be shown of a file, by its content: names and types come from elsewhere. @param {Blob} blob @returns {Promise<Shown>} */
async function readFile(blob) {
  const start = String.fromCharCode(...new Uint8Array(await blob.slice(0, 16).arrayBuffer()));
  const type = PICTURES.find(([mark = ""]) => start.startsWith(mark))?.[1];
  if (type) return { blob, picture: URL.createObjectURL(new Blob([blob], { type })) };
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await blob.slice(0, 8 * MAX_CHARS).arrayBuffer(), { stream: true });
    return text.includes("\0") ? { blob } : { blob, text };
  } catch {
    return { blob };
  }
}

/** @param {string} url @param {string} name */
function saveUrl(url, name) {
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
}
