// The menu of the conversation that is shown.
import { html } from "../vendor/preact.js";
import { download } from "../api.js";
import { go } from "../router.js";
import { mayChange } from "../state.js";
import { toast } from "../ui.js";
import { branch } from "./conversation.js";
import { askFolder, askToDelete, setOrder } from "./list_acts.js";
import { MenuList } from "./menu_list.js";

/**
 * @param {{conversation: import("./conversation.js").Conversation, box: {current: HTMLElement | null}, onClose: () => void,
 *   onCheckpoints: () => void, onShare: () => void, onRename: () => void}} props
 */
export default function Menu({ conversation, box, onClose, onCheckpoints, onShare, onRename }) {
  const { id } = conversation;
  const session = /** @type {import("../state.js").Session} */ (conversation.session.value);
  const name = (session.title || "conversation").replace(/[^\p{L}\p{N} _-]+/gu, "").trim().slice(0, 60) || "conversation";
  const change = mayChange.value;
  /** @param {Record<string, any>} order */
  const organize = async (order) => {
    const [changed] = await setOrder([session], order);
    if (changed) conversation.session.value = changed;
  };
  const remove = async () => {
    if (await askToDelete([session])) go("new", { replace: true });
  };
  return html`<${MenuList} label="Conversation menu" box=${box} onClose=${onClose} entries=${[
    change && { label: "Rename", icon: "edit", act: onRename },
    change && { label: session.pinned ? "Unpin" : "Pin", icon: "pin", act: () => organize({ pinned: !session.pinned }) },
    change && { label: "Move to a folder", icon: "folder", act: () => askFolder([session], organize) },
    change && { label: session.archived ? "Take out of the archive" : "Archive", icon: "archive", act: () => organize({ archived: !session.archived }) },
    change && { label: "Branch", icon: "branch", act: () => branch(id) },
    { label: "Checkpoints", icon: "clock", act: onCheckpoints },
    { label: "Copy the link", icon: "copy", act: () => navigator.clipboard.writeText(location.href).then(() => toast("Copied.")) },
    change && { label: "Share", icon: "external", act: onShare },
    { label: "Export as Markdown", icon: "download", act: () => download(`sessions/${id}/export/markdown`, `${name}.md`) },
    { label: "Export as JSON", icon: "download", act: () => download(`sessions/${id}/export`, `${name}.json`) },
    { label: "Export as HTML", icon: "download", act: () => download(`sessions/${id}/export/html`, `${name}.html`) },
    change && { label: "Delete", icon: "trash", danger: true, act: remove },
  ]} />`;
}
