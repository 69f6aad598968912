// Writes a message of the conversation again: what followed it stays as a version.
import { fetchBlob, upload } from "../api.js";
import { randomId } from "../storage.js";
import { attempt } from "../ui.js";
import { readDataUrl } from "./attachments.js";
import { make } from "./nodes.js";
import { outbox } from "./outbox.js";

/** @typedef {import("./conversation.js").Conversation} Conversation */
/** @typedef {import("./nodes.js").Item} Item */

/** Show the message in a text field, with what sends it. @param {HTMLElement} node @param {Item} item @param {Conversation} conversation */
export function editMessage(node, item, conversation) {
  const body = /** @type {HTMLElement | null} */ (node.querySelector(":scope > .body"));
  if (!body || node.querySelector(".edit-message")) return;
  const area = /** @type {HTMLTextAreaElement} */ (make("textarea"));
  area.value = item.text ?? "";
  area.dir = "auto";
  area.setAttribute("aria-label", "Edited message");
  const send = /** @type {HTMLButtonElement} */ (make("button", "button primary small", "Send"));
  const cancel = /** @type {HTMLButtonElement} */ (make("button", "button small", "Cancel"));
  cancel.type = "button";
  const form = make("form", "edit-message", area, make("div", "answers", cancel, send));
  const end = () => {
    form.remove();
    body.hidden = false;
  };
  cancel.addEventListener("click", end);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) /** @type {HTMLFormElement} */ (form).requestSubmit();
    else if (event.key === "Escape") end();
    else return;
    event.stopPropagation();
    event.preventDefault();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!area.value.trim() || send.disabled) return;
    send.disabled = true;
    send.disabled = await attempt(() => sendEdited(area.value, item, conversation));
  });
  body.hidden = true;
  body.after(form);
  area.focus();
}

/** Send the new words with the pictures and files of the message. @param {string} text @param {Item} item @param {Conversation} conversation */
async function sendEdited(text, item, conversation) {
  const path = `sessions/${conversation.id}/messages/${item.number}`;
  const images = await Promise.all((item.images ?? []).map(async (each) => readDataUrl(await fetchBlob(`${path}/images/${each.id}`))));
  const files = await Promise.all(filesOf(item).map(async ({ id, name }) => (await upload(new File([await fetchBlob(`${path}/attached/${id}`)], name))).id));
  await conversation.rewind(item.run ?? "");
  const body = { input: text, session: conversation.id, ...(images.length && { images }), ...(files.length && { files }) };
  outbox.add({ key: randomId(), session: conversation.id, text, body });
  conversation.transcript?.scrollToEnd();
}

/** The files of a message that are no pictures in it. @param {Item} item */
export const filesOf = (item) => (item.attached ?? []).filter((each) => !(item.images?.length && each.details.startsWith("image/")));
