// Messages on their way to the server. They wait while it cannot be reached, survive a reload, and are sent once.
import { signal } from "../vendor/preact.js";
import { ApiError, post } from "../api.js";
import { connected } from "../live.js";
import { load, save } from "../storage.js";

/**
 * @typedef {object} Sending
 * @property {string} key Idempotency-Key.
 * @property {string} session Id or name of the conversation.
 * @property {string} text
 * @property {Record<string, any>} body Of the request.
 * @property {"sending" | "waiting" | "sent" | "refused"} state
 * @property {string} [run] Its run, once the server has it.
 * @property {string} [problem] Why it was refused.
 */

const NAME = "outbox";

class Outbox {
  /** @type {import("../vendor/preact.js").Signal<Sending[]>} */
  messages = signal(this.#read());
  /** @type {((message: Sending) => void) | null} */
  onAccepted = null;
  #active = new Set();

  constructor() {
    connected.subscribe((now) => now && setTimeout(() => this.#sendAll(), 0));
    addEventListener("online", () => this.#sendAll());
  }

  /** @returns {Sending[]} */
  #read() {
    try {
      return JSON.parse(load(NAME) || "[]").map((/** @type {Sending} */ each) => ({ ...each, state: each.state === "refused" ? "refused" : "waiting" }));
    } catch {
      return [];
    }
  }

  /** @param {Sending[]} messages */
  #write(messages) {
    this.messages.value = messages;
    const kept = messages.filter((each) => each.state !== "sent");
    save(NAME, kept.length ? JSON.stringify(kept) : "");
  }

  /** @param {string} key @param {Partial<Sending>} change */
  #change(key, change) {
    this.#write(this.messages.value.map((each) => (each.key === key ? { ...each, ...change } : each)));
  }

  /** Send a message; a second call with the same key does nothing. @param {Omit<Sending, "state">} message */
  add(message) {
    if (this.messages.value.some((each) => each.key === message.key)) return;
    this.#write([...this.messages.value, { ...message, state: "sending" }]);
    this.#send(message.key);
  }

  /** The conversation of a message has an id now. @param {string} key @param {string} session */
  move(key, session) {
    this.#change(key, { session });
  }

  /** @param {string} key */
  drop(key) {
    this.#write(this.messages.value.filter((each) => each.key !== key));
  }

  /** Forget messages that are shown elsewhere now. @param {string} session @param {string[]} runs @param {string} [text] */
  settle(session, runs, text) {
    const known = new Set(runs);
    const left = this.messages.value.filter((each) => !(each.run && known.has(each.run)));
    // a steered message arrives as a part of the running run
    const steered = left.length === this.messages.value.length && text !== undefined
      ? left.findIndex((each) => each.session === session && each.state === "sent" && each.text === text) : -1;
    if (steered >= 0) left.splice(steered, 1);
    if (left.length !== this.messages.value.length) this.#write(left);
  }

  async #sendAll() {
    for (const message of this.messages.value) if (message.state === "waiting") await this.#send(message.key);
  }

  /** @param {string} key */
  async #send(key) {
    const message = this.messages.value.find((each) => each.key === key);
    if (!message || this.#active.has(key)) return;
    this.#active.add(key);
    try {
      const run = await post("runs", message.body, { key });
      this.#change(key, { state: "sent", run: run.id });
      this.onAccepted?.({ ...message, run: run.id, session: run.session_id || message.session });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 0 || error.status >= 502) {
        connected.value = false;
        this.#change(key, { state: "waiting" });
        setTimeout(() => this.#send(key), 1_000);
      } else this.#change(key, { state: "refused", problem: error.message });
    } finally {
      this.#active.delete(key);
    }
  }
}

export const outbox = new Outbox();
