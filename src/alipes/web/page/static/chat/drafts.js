// Texts that were typed and not sent, and messages that wait for the server. Both survive a reload.
import { computed, signal } from "../vendor/preact.js";
import { load, names, randomId, save } from "../storage.js";

/** Name of the draft of a conversation that does not exist yet. */
export const NEW = "new";

/**
 * @typedef {object} Draft
 * @property {string} text
 * @property {string} key Idempotency-Key of the message, from its first keystroke.
 */

const PREFIX = "draft.";
const drafts = signal(new Map(names(PREFIX).map((name) => [name.slice(PREFIX.length), parse(load(name))])));
/** Ids of the conversations with a draft. */
export const draftIds = computed(() => new Set([...drafts.value].filter(([, draft]) => draft.text.trim()).map(([id]) => id)));

/** @param {string} stored @returns {Draft} */
function parse(stored) {
  try {
    const { text = "", key = "" } = JSON.parse(stored);
    return { text: String(text), key: String(key) || randomId() };
  } catch {
    return { text: "", key: randomId() };
  }
}

/** @param {string} id @returns {Draft} */
export function findDraft(id) {
  return drafts.value.get(id) ?? { text: "", key: randomId() };
}

/** @param {string} id @param {Draft} draft An empty text removes it. */
export function keepDraft(id, draft) {
  const next = new Map(drafts.value);
  if (draft.text) next.set(id, draft);
  else next.delete(id);
  drafts.value = next;
  save(PREFIX + id, draft.text ? JSON.stringify(draft) : "");
}
