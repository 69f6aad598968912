// What several parts of the page know: who we are, the conversations, the open questions.
import { batch, computed, signal } from "./vendor/preact.js";
import { ApiError, get, loggedIn } from "./api.js";
import { onEvent, reconnected } from "./live.js";

/**
 * @typedef {object} Session
 * @property {string} id @property {string} [name] @property {string} [platform] @property {string} [title]
 * @property {number} [created] @property {number} [updated] @property {number} [turns] @property {number} [unfinished]
 * @property {number} [messages] @property {string} [model] @property {string} [parent] @property {string} [user]
 * @property {boolean} [pinned] @property {boolean} [archived] @property {string} [folder] @property {"person" | "ask" | "key"} [made_by]
 * @property {boolean} [unlisted] @property {string} [workdir]
 * @property {string} [origin] @property {boolean} [current] @property {string} [status] @property {string} [effort]
 * @property {string} [permission_mode] @property {string} [busy] @property {string} [preview] @property {string} [chat_type]
 */

/** Who this browser is. */
export const caller = signal(/** @type {{name: string, scopes: string[], clustered?: boolean} | null} */ (null));
/** Whether it may do more than read. */
export const mayChange = computed(() => !caller.value || caller.value.scopes.includes("admin"));
export const conversations = signal(/** @type {Session[]} */ ([]));
/** Words that the listed conversations match. */
export const filter = signal("");
export const listState = signal(/** @type {"loading" | "more" | "all" | "failed"} */ ("loading"));
/** Which conversations are listed: "person", "archive", "ask", "key", or "folder:" and its name. */
export const view = signal("person");
export const folders = signal(/** @type {{name: string, conversations: number}[]} */ ([]));
/** Number of open questions of all conversations. */
export const waiting = signal(0);

const PAGE = 60;
let cursor = "";
let generation = 0;

/** Load the first conversations again, and keep those shown until they are here. */
export async function reloadConversations() {
  const mine = ++generation;
  cursor = "";
  listState.value = "loading";
  await loadPage(mine, true);
}

/** Load the next ones, if there are more. */
export async function loadMoreConversations() {
  if (listState.value !== "more") return;
  listState.value = "loading";
  await loadPage(generation, false);
}

/** @returns {Record<string, string>} */
function viewParams() {
  const now = view.value;
  if (filter.value && now === "person") return {};
  if (now === "archive") return { archived: "yes" };
  if (now.startsWith("folder:")) return { archived: "no", folder: now.slice(7) };
  return { archived: "no", made_by: now };
}

/** Whether a conversation belongs into the list. @param {Session} session */
function isListed(session) {
  const now = view.value;
  if (session.unlisted) return false;
  if (now === "archive") return Boolean(session.archived);
  if (session.archived) return false;
  return now.startsWith("folder:") ? session.folder === now.slice(7) : (session.made_by ?? "person") === now;
}

/** @param {string} next */
export function setView(next) {
  view.value = next;
  return reloadConversations();
}

export async function loadFolders() {
  folders.value = (await get("session-folders").catch(() => null))?.folders ?? folders.value;
}

/** @param {number} mine @param {boolean} fresh */
async function loadPage(mine, fresh) {
  try {
    const wanted = viewParams();
    const pins = fresh && view.value === "person" && !filter.value ? get("sessions", { limit: 100, pinned: "true", ...wanted }) : { sessions: [] };
    const [{ sessions: pinned = [] }, found] = await Promise.all([pins, get("sessions", { limit: PAGE, q: filter.value, cursor, ...wanted })]);
    if (mine !== generation) return;
    batch(() => {
      cursor = found.cursor || "";
      const known = fresh ? pinned : conversations.value;
      const ids = new Set(known.map((/** @type {Session} */ each) => each.id));
      conversations.value = [...known, ...found.sessions.filter((/** @type {Session} */ each) => !ids.has(each.id))];
      listState.value = found.more && cursor ? "more" : "all";
    });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (mine !== generation) return;
    listState.value = "failed";
    if (error.status === 0) reconnected().then(reloadConversations);
  }
}

/** @param {string} id @returns {Session | undefined} */
export const findConversation = (id) => conversations.value.find((each) => each.id === id);

/** Show this conversation where its time puts it. @param {Session} session */
export function placeConversation(session) {
  const others = conversations.value.filter((each) => each.id !== session.id);
  if (!isListed(session)) {
    conversations.value = others;
    return;
  }
  const at = others.findIndex((each) => (each.updated ?? 0) <= (session.updated ?? 0));
  if (at < 0 && listState.value === "more") conversations.value = others;
  else conversations.value = at < 0 ? [...others, session] : [...others.slice(0, at), session, ...others.slice(at)];
}

/** @param {string} id */
export function removeConversation(id) {
  conversations.value = conversations.value.filter((each) => each.id !== id);
}

/** @type {Set<string>} */
const changed = new Set();
let timer = 0;

/** Fetch changed conversations: a few by id, many as a new first page. */
async function fetchChanged() {
  timer = 0;
  const ids = [...changed];
  changed.clear();
  if (ids.length > 8 || filter.value) return reloadConversations();
  for (const id of ids) {
    try {
      placeConversation(await get(`sessions/${id}`));
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) removeConversation(id);
    }
  }
}

/** @param {{type: string, id?: string, session?: string}} event */
function noteChange({ type, id = "", session = "" }) {
  if (type === "reset") return;
  changed.add(session || id);
  timer ||= setTimeout(fetchChanged, 200);
}

export async function countQuestions() {
  const found = await get("inbox").catch(() => null);
  if (found) waiting.value = found.questions.length + (found.pairing || 0) + (found.proposals || 0);
}

/** @returns {Promise<void>} */
async function start() {
  const who = await get("key").catch(() => null);
  if (!who && loggedIn.value) return reconnected().then(start);
  caller.value = who;
  countQuestions();
  loadFolders();
}

onEvent("session", noteChange);
onEvent("run", noteChange);
onEvent("session_deleted", ({ id }) => removeConversation(id || ""));
onEvent("inbox", countQuestions);
onEvent("reset", () => reloadConversations());
loggedIn.subscribe((now) => {
  if (!now) return;
  start();
  reloadConversations();
});
