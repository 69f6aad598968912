// The checkpoints of a conversation: what has changed since, and going back.
import { html, useEffect, useState } from "../vendor/preact.js";
import { ApiError, get, post, text } from "../api.js";
import { mayChange } from "../state.js";
import { Button, Dialog, Diff, Empty, ErrorBox, Spinner, Time, confirm, toast } from "../ui.js";

/** @typedef {{number: number, created: number, run: string, text: string, files: string[]}} Checkpoint */

/** @param {{conversation: import("./conversation.js").Conversation, onClose: () => void}} props */
export default function Checkpoints({ conversation, onClose }) {
  const path = `sessions/${conversation.id}`;
  const [found, setFound] = useState(/** @type {{checkpoints: Checkpoint[], unavailable?: string} | null} */ (null));
  const [problem, setProblem] = useState(/** @type {unknown} */ (null));
  const [diff, setDiff] = useState({ number: 0, text: "" });
  const load = () => get(`${path}/checkpoints`).then(setFound, setProblem);
  useEffect(() => {
    load();
  }, []);
  /** @param {number} number */
  const compare = async (number) => {
    if (diff.number === number) setDiff({ number: 0, text: "" });
    else setDiff({ number, text: await text(`${path}/checkpoints/diff`, { checkpoint: number }) });
  };
  /** @param {Checkpoint} each @param {string} restore @param {boolean} [force] */
  const goBack = async (each, restore, force = false) => {
    const what = restore === "files" ? "The files are restored." : "The files are restored, and this turn and all after it are undone.";
    if (!force && !(await confirm({ title: "Go back to this checkpoint?", text: what, action: "Go back", danger: true }))) return;
    try {
      const done = await post(`${path}/rollback`, { checkpoint: each.number, restore, force });
      toast(`Restored ${done.restored.length} files.`);
      await conversation.reload();
      load();
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== "conflict") throw error;
      if (await confirm({ title: "Overwrite changed files?", text: error.message, action: "Overwrite", danger: true })) await goBack(each, restore, true);
    }
  };
  return html`<${Dialog} title="Checkpoints" wide onClose=${onClose}>
    ${problem ? html`<${ErrorBox} error=${problem} />` : !found ? html`<${Spinner} />` : null}
    ${found && !found.checkpoints.length && html`<${Empty} title=${found.unavailable || "No checkpoints yet."}>A checkpoint is made before a turn changes files.<//>`}
    ${found?.checkpoints.map((each) => html`<section key=${each.number} class="checkpoint">
      <p><strong>${each.number}</strong> <bdi>${each.text || "Before a rollback"}</bdi> <span class="muted"><${Time} value=${each.created} /></span></p>
      ${each.files.length > 0 && html`<p class="muted small">${each.files.slice(0, 8).join(", ")}${each.files.length > 8 ? ` and ${each.files.length - 8} more` : ""}</p>`}
      <p class="answers"><${Button} small onClick=${() => compare(each.number)}>${diff.number === each.number ? "Hide changes" : "Changes since"}<//>
        ${mayChange.value && html`<${Button} small onClick=${() => goBack(each, "files")}>Restore files<//>
        <${Button} small onClick=${() => goBack(each, "both")}>Restore files and conversation<//>`}</p>
      ${diff.number === each.number && (diff.text ? html`<${Diff} text=${diff.text} />` : html`<p class="muted">Nothing has changed.</p>`)}
    </section>`)}
  <//>`;
}
