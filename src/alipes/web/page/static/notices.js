// Tells a person who looks elsewhere that an answer has arrived, or that the agent waits for one.
import { effect, signal } from "./vendor/preact.js";
import { get } from "./api.js";
import { onEvent } from "./live.js";
import { go } from "./router.js";
import { load, save } from "./storage.js";
import { waiting } from "./state.js";

/** Answers that arrived while this tab was hidden. */
export const unseen = signal(0);
/** Whether the browser shows notifications of the page. */
export const notified = signal(load("notices") === "on" && "Notification" in window && Notification.permission === "granted");

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) unseen.value = 0;
});

/** Switch notifications on, if the person allows it, or off. @param {boolean} on @returns {Promise<boolean>} Whether that worked. */
export async function setNotified(on) {
  const allowed = !on || ("Notification" in window && (await Notification.requestPermission()) === "granted");
  notified.value = on && allowed;
  save("notices", notified.value ? "on" : "");
  return allowed;
}

/** @param {string} title @param {string} body @param {string} path Where a click leads. */
async function notify(title, body, path) {
  if (!notified.value) return;
  const options = { body: body.slice(0, 200), tag: path, icon: /** @type {HTMLLinkElement | null} */ (document.querySelector("link[rel=apple-touch-icon]"))?.href };
  const worker = await navigator.serviceWorker?.getRegistration().catch(() => undefined);
  if (worker?.active && await worker.showNotification(title, { ...options, data: path }).then(() => true, () => false)) return;
  const shown = new Notification(title, options);
  shown.onclick = () => {
    window.focus();
    go(path);
    shown.close();
  };
}

onEvent("run", async ({ session = "", status = "" }) => {
  if (!document.hidden || !/^(answered|failed)$/.test(status) || !session) return;
  const found = await get(`sessions/${session}`).catch(() => null);
  if (found?.origin !== "page" || !document.hidden) return;
  unseen.value += 1;
  await notify(status === "answered" ? `Answer: ${found.title}` : `Failed: ${found.title}`, found.preview ?? "", `c/${session}`);
});

let before = 0;
effect(() => {
  const now = waiting.value;
  if (now > before && document.hidden) notify("The agent waits for you", now === 1 ? "One question is open." : `${now} questions are open.`, "inbox");
  before = now;
});
