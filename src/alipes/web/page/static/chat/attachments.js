// Files and pictures of a message that is being written.
import { html } from "../vendor/preact.js";
import { ApiError, upload } from "../api.js";
import { randomId } from "../storage.js";
import { IconButton, formatSize } from "../ui.js";

/** @typedef {import("./composer.js").Attachment} Attachment */

const PICTURES = /^image\/(png|jpeg|gif|webp)$/;
const MAX_INLINE_BYTES = 4_000_000;

/** @param {{files: Attachment[], setFiles: import("../vendor/preact.js").SetState<Attachment[]>}} props */
export default function Attachments({ files, setFiles }) {
  return html`<ul class="attachments" aria-label="Attachments">${files.map((each) => html`<${AttachmentChip} key=${each.id} file=${each}
    remove=${() => setFiles((all) => all.filter((other) => other.id !== each.id))} />`)}</ul>`;
}

/** @param {File} file @param {import("../vendor/preact.js").SetState<Attachment[]>} setFiles */
export async function addFile(file, setFiles) {
  const id = randomId();
  const isPicture = PICTURES.test(file.type);
  /** @param {Partial<Attachment>} more */
  const change = (more) => setFiles((all) => all.map((each) => (each.id === id ? { ...each, ...more } : each)));
  const preview = isPicture ? URL.createObjectURL(file) : undefined;
  setFiles((all) => [...all, { id, name: file.name || "picture", size: file.size, preview, busy: true }]);
  try {
    if (isPicture && file.size <= MAX_INLINE_BYTES) change({ image: await readDataUrl(file), busy: false });
    else change({ file: (await upload(file)).id, busy: false });
  } catch (error) {
    const why = error instanceof ApiError ? error.message : "The file could not be read.";
    change({ problem: why, busy: false });
  }
}

/** @param {Blob} file @returns {Promise<string>} */
export function readDataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** @param {{file: Attachment, remove: () => void}} props */
function AttachmentChip({ file, remove }) {
  return html`<li class=${`attachment${file.problem ? " failed" : ""}`}>
    ${file.preview && html`<img src=${file.preview} alt="" onError=${(/** @type {Event} */ event) => /** @type {HTMLElement} */ (event.currentTarget).remove()} />`}
    <span><bdi class="attachment-name">${file.name}</bdi>
      <span class="muted small">${file.busy ? "uploading …" : formatSize(file.size)}</span>
      ${file.problem && html`<span class="problem small" role="alert">Not attached: ${file.problem}</span>`}</span>
    <${IconButton} small icon="close" label=${`Remove ${file.name}`} onClick=${remove} /></li>`;
}
