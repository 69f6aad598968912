// One open conversation: its messages, its runs, its questions and its queue, kept up to date.
import { batch, computed, signal } from "../vendor/preact.js";
import { ApiError, get, patch, post } from "../api.js";
import { onEvent, reconnected } from "../live.js";
import { go } from "../router.js";
import { findConversation, placeConversation } from "../state.js";
import { toast } from "../ui.js";
import { LiveRun } from "./live_run.js";
import { outbox } from "./outbox.js";
import { Transcript } from "./transcript.js";

/**
 * @typedef {object} Question
 * @property {string} ask @property {string} kind @property {string} [run] @property {string} [tool] @property {string} [command]
 * @property {string} [reason] @property {string} [rule] @property {string} [workdir] @property {string} [diff]
 * @property {string} [pattern] @property {string} [files] @property {string} [once] @property {string} [question] @property {string[]} [choices] @property {string[]} [answers]
 * @property {number} [until] @property {string} [answered] What was answered, here or elsewhere.
 */
/**
 * @typedef {object} Activity
 * @property {string} [run] @property {{run: string, text: string, held?: boolean}[]} [queue]
 * @property {{id?: string, text: string, status: string}[]} [todos]
 * @property {{run: string, session: string, goal: string, status: string, started?: number}[]} [subagents]
 * @property {{name: string, command: string, status: string, started?: number, output?: string}[]} [processes]
 * @property {Question[]} [questions]
 */

/** @typedef {{name: string, args?: string, help?: string, changes_transcript?: boolean}} Command */
/** @type {Map<string, Promise<Command[]>>} */
const commandLists = new Map();

/** The commands that can be given in a conversation. @param {string} session @returns {Promise<Command[]>} */
export function listCommands(session) {
  let found = commandLists.get(session);
  if (!found) {
    found = get("commands", { session }).then((body) => body.commands).catch(() => {
      commandLists.delete(session);
      return [];
    });
    commandLists.set(session, found);
  }
  return found;
}

/** The command that a text is. @param {string} session @param {string} text */
export async function findCommand(session, text) {
  const name = text.slice(1).split(/\s/)[0];
  return (await listCommands(session)).find((each) => each.name === name);
}

export class Conversation {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.session = signal(/** @type {import("../state.js").Session | null} */ (findConversation(id) ?? null));
    this.activity = signal(/** @type {Activity} */ ({}));
    this.questions = signal(/** @type {Question[]} */ ([]));
    this.problem = signal("");
    this.loaded = signal(false);
    /** The text of the last finished message, for screen readers. */
    this.announcement = signal("");
    this.notice = signal("");
    this.runs = signal(/** @type {string[]} */ ([]));
    this.isRunning = computed(() => this.runs.value.length > 0);
    this.#unsubscribe = [
      onEvent("session", (event) => event.id === id && this.#updateSoon()),
      onEvent("run", (event) => event.session === id && this.#updateSoon()),
      onEvent("inbox", () => this.runs.value.length && this.#updateSoon()),
      onEvent("reset", () => this.#updateSoon()),
    ];
  }

  #unsubscribe;
  /** How often a change began or ended: what was read meanwhile is old. */
  #changes = 0;
  /** @type {Promise<unknown>} */
  #changing = Promise.resolve();
  #timer = 0;
  #closed = false;
  /** @type {Transcript | null} */
  transcript = null;
  /** @type {Map<string, LiveRun>} */
  #live = new Map();
  /** @type {HTMLElement | null} */
  #tail = null;

  /** @param {HTMLElement} scroller @param {HTMLElement} sheets @param {HTMLElement} tail @param {number} [number] */
  async open(scroller, sheets, tail, number) {
    this.transcript = new Transcript(this.id, scroller, sheets);
    this.#tail = tail;
    try {
      const beside = Promise.all([this.#fetchActivity(), this.#fetchSession()]);
      beside.catch(() => {}); // reported below, if the messages are there
      const page = await this.transcript.open(number);
      this.#settle(page.messages);
      this.loaded.value = true;
      await beside;
      this.#followActive();
    } catch (error) {
      if (this.#closed) return;
      this.transcript.close();
      this.#report(error);
      if (error instanceof ApiError && error.status !== 0) return;
      await reconnected();
      this.problem.value = "";
      if (!this.#closed) await this.open(scroller, sheets, tail, number);
    }
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    for (const end of this.#unsubscribe) end();
    for (const live of this.#live.values()) live.close();
    this.transcript?.close();
  }

  /** Go to a message. @param {number} number */
  async show(number) {
    if (!this.transcript || this.transcript.showMessage(number)) return;
    await this.transcript.open(number);
  }

  /** Go to the newest message. */
  async showEnd() {
    if (this.transcript?.moreAfter.value) {
      await this.transcript.open();
      this.#restart();
    } else this.transcript?.scrollToEnd();
  }

  /** Load everything again, after messages were taken back. */
  async reload() {
    await this.transcript?.open();
    this.#restart();
    await this.update();
  }

  #restart() {
    for (const live of this.#live.values()) live.close();
    this.#live.clear();
    this.runs.value = [];
    this.#followActive();
  }

  #updateSoon() {
    this.#timer ||= setTimeout(() => this.update(), 60);
  }

  async update() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    try {
      await Promise.all([this.#fetchActivity(), this.#fetchSession()]);
      if (this.#closed || !this.loaded.value) return;
      this.#followActive();
      if (!this.#live.size) this.#settle((await this.transcript?.update()) ?? []);
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) this.#report(error);
    }
  }

  async #fetchActivity() {
    const found = await get(`sessions/${this.id}/activity`);
    batch(() => {
      this.activity.value = found;
      const open = new Map((found.questions ?? []).map((/** @type {Question} */ each) => [each.ask, each]));
      const kept = this.questions.value.filter((each) => each.answered || open.has(each.ask));
      const known = new Set(kept.map((each) => each.ask));
      this.questions.value = [...kept, ...[...open.values()].filter((each) => !known.has(each.ask))];
    });
    outbox.settle(this.id, (found.queue ?? []).map((/** @type {{run: string}} */ each) => each.run));
  }

  async #fetchSession() {
    const changes = this.#changes;
    const found = await get(`sessions/${this.id}`);
    if (changes === this.#changes) this.session.value = found;
  }

  #followActive() {
    const run = this.activity.value.run;
    if (run) this.follow(run);
  }

  /** @param {string} run */
  follow(run) {
    if (this.#live.has(run) || this.#closed || !this.transcript || !this.#tail) return;
    const watcher = {
      onSaid: this.#onSaid,
      onEnd: this.#onEnd,
      onQuestion: this.#onQuestion,
      onNotice: (/** @type {string} */ text) => (this.notice.value = text),
    };
    this.#live.set(run, new LiveRun(run, this.transcript, this.#tail, watcher));
    this.runs.value = [...this.#live.keys()];
  }

  /** @param {string} run @param {import("./nodes.js").Item} item */
  #onSaid = (run, item) => {
    if (item.role === "user") outbox.settle(this.id, [run], item.text ?? "");
    if (item.role === "assistant" && item.text) this.announcement.value = item.text.slice(0, 2_000);
    this.notice.value = "";
  };

  /** @param {string} run @param {any} event */
  #onEnd = (run, event) => {
    this.#live.delete(run);
    outbox.settle(this.id, [run]);
    batch(() => {
      this.runs.value = [...this.#live.keys()];
      this.questions.value = this.questions.value.filter((each) => each.run !== run);
      this.notice.value = "";
    });
    if (event.ending) this.transcript?.addEnding(run, { status: event.ending, detail: event.detail });
    this.update();
  };

  /** @param {string} type @param {any} event */
  #onQuestion = (type, event) => {
    const others = this.questions.value.filter((each) => each.ask !== event.ask);
    if (type === "approval_asked") {
      const { ask, call, reason, rule, workdir, diff, pattern, files, once } = event;
      const run = this.runs.value[0];
      const command = typeof call.args?.command === "string" ? call.args.command : JSON.stringify(call.args, null, 2);
      this.questions.value = [...others, { ask, kind: "approval", run, tool: call.name, command, reason, rule, workdir, diff, pattern, files, once, answers: once ? ["once", "no"] : undefined }];
    } else if (type === "asked") {
      this.questions.value = [...others, { ...event, kind: "question", run: this.runs.value[0] }];
    } else {
      this.questions.value = others;
    }
  };

  async stop() {
    const run = this.runs.value[0] ?? this.activity.value.run;
    if (!run) return;
    await post(`runs/${run}/stop`);
    this.#updateSoon();
  }

  /** Take a run and all after it out of the conversation. @param {string} run */
  async rewind(run) {
    await post(`sessions/${this.id}/rewind`, { run });
    await this.reload();
  }

  /** Ask the last message again; the answer before stays as a version. */
  async retry() {
    const { run } = await post(`sessions/${this.id}/retry`);
    await this.reload();
    this.follow(run);
  }

  /** Show another version of a message, with what followed it. @param {string} run */
  async showVersion(run) {
    await post(`sessions/${this.id}/versions`, { run });
    await this.reload();
  }

  /** Run a command such as /undo 2. @param {string} text */
  async runCommand(text) {
    const done = await post(`sessions/${this.id}/commands`, { text });
    const command = await findCommand(this.id, text);
    if (!command || command.changes_transcript) await this.reload();
    else await this.update();
    return done;
  }

  /** Messages that are in the transcript are no longer on their way. @param {import("./nodes.js").Item[]} items */
  #settle(items) {
    outbox.settle(this.id, items.flatMap((item) => (item.run ? [item.run] : [])));
  }

  /** @param {unknown} error */
  #report(error) {
    if (!(error instanceof ApiError)) throw error;
    if (this.loaded.value) toast(error.message, { kind: "error" });
    else this.problem.value = error.status === 404 ? "This conversation does not exist. It may have been deleted." : error.message;
  }

  /** One after the other, so that the last answer has all of them. @param {Record<string, string>} changes */
  change(changes) {
    this.#changes++;
    const done = this.#changing.then(() => patch(`sessions/${this.id}`, changes)).then((session) => {
      this.#changes++;
      this.session.value = session;
      placeConversation(session);
    });
    this.#changing = done.catch(() => {});
    return done;
  }
}

/** Branch a conversation, at a message if given, and open the branch. @param {string} id @param {number} [message] */
export async function branch(id, message) {
  const made = await post(`sessions/${id}/fork`, message ? { message } : {});
  toast("Created a branch. The original is unchanged.");
  go(`c/${made.id}`);
}
