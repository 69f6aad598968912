// What can be done with conversations of the list, one or several: pin, archive, file, rename, delete.
import { html, signal, useState } from "../vendor/preact.js";
import { del, patch } from "../api.js";
import { folders, loadFolders, placeConversation, removeConversation } from "../state.js";
import { Button, Dialog, attempt, confirm, toast } from "../ui.js";

/** @typedef {import("../state.js").Session} Session */

/** @param {Session} session */
export const titleOf = (session) => (session.title || session.preview || nameOf(session)).slice(0, 200);

/** The name of a conversation without words yet: those that the page itself gives say nothing. @param {Session} session */
const nameOf = ({ name = "" }) => (!name || /^page-[\w-]{10}$/.test(name) ? "New conversation" : name);

/** @param {Session[]} chosen @param {Record<string, any>} changes @returns {Promise<Session[]>} */
export async function setOrder(chosen, changes) {
  const changed = [];
  for (const each of chosen) {
    const session = await patch(`sessions/${each.id}`, changes);
    placeConversation(session);
    changed.push(session);
  }
  if ("folder" in changes || "archived" in changes) await loadFolders();
  if ("archived" in changes) {
    const undo = { label: "Undo", act: () => setOrder(chosen, { archived: !changes.archived }) };
    toast(`${chosen.length === 1 ? "Conversation" : `${chosen.length} conversations`} ${changes.archived ? "archived" : "taken out of the archive"}.`, { action: undo });
  }
  return changed;
}

/** @param {Session[]} chosen @returns {Promise<boolean>} Whether they were deleted. */
export async function askToDelete(chosen) {
  const [first] = chosen;
  const one = chosen.length === 1 && first;
  const sure = await confirm({
    title: one ? "Delete the conversation?" : `Delete ${chosen.length} conversations?`,
    text: `${one ? `“${titleOf(one).slice(0, 100)}” and all its messages are` : "They and all their messages are"} deleted. This cannot be undone.`,
    action: "Delete", danger: true,
  });
  if (!sure) return false;
  for (const each of chosen) {
    await del(`sessions/${each.id}`);
    removeConversation(each.id);
  }
  return true;
}

/** @type {import("../vendor/preact.js").Signal<{title: string, label: string, value: string, names?: string[], done: (text: string) => unknown} | null>} */
const asked = signal(null);

/** @param {Session[]} chosen @param {(order: Record<string, any>) => unknown} [act] */
export function askFolder(chosen, act = (order) => setOrder(chosen, order)) {
  const done = (/** @type {string} */ folder) => act({ folder: folder.trim() });
  asked.value = { title: "Move to a folder", label: "Folder; empty: none", value: chosen[0]?.folder ?? "", names: folders.value.map((each) => each.name), done };
}

/** @param {Session} session */
export function askTitle(session) {
  const done = async (/** @type {string} */ title) => placeConversation(await patch(`sessions/${session.id}`, { title: title.trim() }));
  asked.value = { title: "Rename the conversation", label: "Title; empty: its first words", value: session.title ?? "", done };
}

/** The question for a name that one of the acts asks. */
export function NameDialog() {
  const now = asked.value;
  return now && html`<${NameForm} key=${now.title} asked=${now} />`;
}

/** @param {{asked: NonNullable<typeof asked.value>}} props */
function NameForm({ asked: { title, label, value, names, done } }) {
  const [text, setText] = useState(value);
  const close = () => (asked.value = null);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (await attempt(() => done(text))) close();
  };
  return html`<${Dialog} title=${title} onClose=${close}><form class="name-form" onSubmit=${submit}>
    <label>${label} <input autofocus dir="auto" maxlength=${names ? 60 : 200} list=${names ? "folder-names" : undefined} value=${text}
      onInput=${(/** @type {Event} */ event) => setText(/** @type {HTMLInputElement} */ (event.currentTarget).value)} /></label>
    ${names && html`<datalist id="folder-names">${names.map((each) => html`<option key=${each} value=${each} />`)}</datalist>`}
    <div class="answers"><${Button} kind="primary" type="submit">Save<//><${Button} onClick=${close}>Cancel<//></div></form><//>`;
}
