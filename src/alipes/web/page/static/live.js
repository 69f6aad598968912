// Streams of events over fetch: resumed by Last-Event-ID, reconnected after silence, a woken tab or a returned network.
import { signal } from "./vendor/preact.js";
import { ApiError, address, loggedIn, send } from "./api.js";

const SILENCE_MS = 25_000;
const HIDDEN_MS = 15_000;
/** Whether the server answered last time we asked. */
export const connected = signal(true);

/** @returns {Promise<void>} When the server answers again. */
export function reconnected() {
  connected.value = false;
  return new Promise((resolve) => {
    const end = connected.subscribe((now) => {
      if (now) queueMicrotask(() => end());
      if (now) resolve();
    });
  });
}

/** @type {Set<() => void>} */
const sleepers = new Set();
const wakeAll = () => [...sleepers].forEach((wake) => wake());
addEventListener("online", wakeAll);
addEventListener("pageshow", wakeAll);
document.addEventListener("visibilitychange", () => document.hidden || wakeAll());
document.addEventListener("resume", wakeAll);

/**
 * @typedef {object} StreamEvent
 * @property {string} id @property {string} type @property {string} data
 */

/** Splits the text of a stream into events. */
export class EventParser {
  #rest = "";

  /** @param {string} text @returns {StreamEvent[]} */
  push(text) {
    this.#rest += text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
    const found = [];
    for (let end; (end = this.#rest.indexOf("\n\n")) >= 0; ) {
      const event = this.#parse(this.#rest.slice(0, end));
      this.#rest = this.#rest.slice(end + 2);
      if (event) found.push(event);
    }
    return found;
  }

  /** @param {string} block @returns {StreamEvent | null} */
  #parse(block) {
    const event = { id: "", type: "message", data: "" };
    const lines = [];
    for (const line of block.split("\n")) {
      const colon = line.indexOf(":");
      if (colon <= 0) continue;
      const value = line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
      const name = line.slice(0, colon);
      if (name === "data") lines.push(value);
      else if (name === "id") event.id = value;
      else if (name === "event") event.type = value;
    }
    event.data = lines.join("\n");
    return lines.length ? event : null;
  }
}

/**
 * @typedef {object} StreamHandlers
 * @property {(type: string, data: any, id: string) => void} onEvent
 * @property {(id: string) => void} [onOpen] A connection was made, after this event.
 * @property {() => void} [onData] Something arrived, perhaps only a heartbeat.
 * @property {(problem: ApiError) => void} [onRefused] The server will not answer; the stream is closed.
 * @property {() => boolean} [isOver] Asked when the server ends the stream: whether that was all.
 */

/** One stream that is kept open until `close`. */
export class Stream {
  /** @param {string} path @param {StreamHandlers} handlers @param {{lastId?: string, restWhenHidden?: boolean}} [options] */
  constructor(path, handlers, { lastId = "", restWhenHidden = false } = {}) {
    this.lastId = lastId;
    this.closed = false;
    this.#path = path;
    this.#handlers = handlers;
    this.#rests = restWhenHidden;
    this.#run();
  }

  #path;
  #handlers;
  #rests;
  #heard = 0;
  /** @type {AbortController | null} */
  #request = null;
  #wake = () => {};

  close() {
    this.closed = true;
    this.#request?.abort();
    this.#wake();
  }

  async #run() {
    const onWake = () => this.#check();
    sleepers.add(onWake);
    const timer = setInterval(onWake, 5_000);
    let failures = 0;
    while (!this.closed) {
      if (this.#mayRest()) await this.#sleep(0);
      else if (await this.#connect()) failures = 0;
      else await this.#sleep(failures++ < 100 ? 250 : 2_000);
    }
    clearInterval(timer);
    sleepers.delete(onWake);
  }

  /** A hidden tab needs no connection of its own: it continues when it is shown again. */
  #mayRest() {
    return this.#rests && document.hidden && performance.now() - hiddenSince > HIDDEN_MS;
  }

  #check() {
    if (this.#mayRest() || performance.now() - this.#heard > SILENCE_MS) this.#request?.abort();
    if (!this.#mayRest()) this.#wake();
  }

  /** @param {number} ms 0: until woken. @returns {Promise<void>} */
  #sleep(ms) {
    return new Promise((resolve) => {
      const timer = ms ? setTimeout(resolve, ms) : 0;
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** @returns {Promise<boolean>} Whether to connect again at once. */
  async #connect() {
    const request = (this.#request = new AbortController());
    const opened = (this.#heard = performance.now());
    try {
      const headers = { accept: "text/event-stream", ...(this.lastId && { "last-event-id": this.lastId }) };
      const response = await send(address(this.#path), { headers, signal: request.signal });
      connected.value = true;
      this.#handlers.onOpen?.(this.lastId);
      if (response.status !== 204 && response.body) await this.#read(response.body.getReader());
      if (this.#handlers.isOver?.() || response.status === 204) this.closed = true;
      return performance.now() - opened > 250;
    } catch (error) {
      if (error instanceof ApiError) this.#handleProblem(error);
      return error instanceof DOMException && error.name === "AbortError";
    }
  }

  /** @param {ApiError} problem */
  #handleProblem(problem) {
    if (problem.status === 0 || problem.status >= 500 || problem.status === 429) connected.value = problem.status !== 0;
    else {
      this.closed = true;
      this.#handlers.onRefused?.(problem);
    }
  }

  /** @param {ReadableStreamDefaultReader<Uint8Array>} reader */
  async #read(reader) {
    const decoder = new TextDecoder();
    const parser = new EventParser();
    for (;;) {
      const { value, done } = await reader.read().catch(() => ({ value: undefined, done: true }));
      if (done || this.closed) return;
      this.#heard = performance.now();
      this.#handlers.onData?.();
      for (const event of parser.push(decoder.decode(value, { stream: true }))) {
        if (event.id) this.lastId = event.id;
        this.#handlers.onEvent(event.type, JSON.parse(event.data), event.id);
      }
    }
  }
}

let hiddenSince = document.hidden ? performance.now() : Infinity;
document.addEventListener("visibilitychange", () => {
  hiddenSince = document.hidden ? performance.now() : Infinity;
});

/**
 * Follow the events of a run to its end.
 * @param {string} run @param {StreamHandlers} handlers @param {string} [lastId] @returns {Stream}
 */
export function followRun(run, handlers, lastId = "") {
  let ended = false;
  /** @type {StreamHandlers} */
  const all = {
    ...handlers,
    onEvent: (type, data, id) => {
      if (type === "turn_ended") ended = true;
      handlers.onEvent(type, data, id);
    },
    isOver: () => ended,
  };
  return new Stream(`runs/${run}/events`, all, { lastId, restWhenHidden: true });
}

/**
 * Read a stream of events until `signal` is aborted.
 * @param {string} path @param {StreamHandlers & {lastId?: string, signal?: AbortSignal}} options @returns {Stream}
 */
export function stream(path, { lastId = "", signal: ended, ...handlers }) {
  const opened = new Stream(path, handlers, { lastId });
  ended?.addEventListener("abort", () => opened.close());
  return opened;
}

/** @type {Map<string, Set<(data: any) => void>>} */
const listeners = new Map();

/** Call `fn` for events of this type of /v1/events; "*" means all. @param {string} type @param {(data: any) => void} fn @returns {() => void} Ends it. */
export function onEvent(type, fn) {
  const all = listeners.get(type) ?? new Set();
  listeners.set(type, all.add(fn));
  return () => all.delete(fn);
}

/** After `reset`, which means that events were missed, all are called. @param {string} type @param {any} data */
function tellListeners(type, data) {
  const all = type === "reset" ? new Set([...listeners.values()].flatMap((each) => [...each])) : listeners.get(type) ?? [];
  for (const fn of new Set([...all, ...(listeners.get("*") ?? [])])) fn({ type, ...data });
}

/** The stream /v1/events: one tab holds a lock and the connection, and passes the events on to the others. */
class SharedEvents {
  #lastId = "";
  #heard = performance.now();
  /** @type {Stream | null} */
  #stream = null;
  /** @type {BroadcastChannel | null} */
  #channel = null;

  start() {
    if (this.#channel || this.#stream) return;
    if (!navigator.locks || !("BroadcastChannel" in window)) {
      this.#open();
      return;
    }
    this.#channel = new BroadcastChannel("alipes.events");
    this.#channel.onmessage = ({ data }) => this.#receive(data);
    this.#queue(false);
    sleepers.add(() => this.#check());
    setInterval(() => this.#check(), 20_000);
  }

  /** @param {boolean} steal */
  #queue(steal) {
    const hold = () =>
      new Promise((resolve) => {
        this.#open();
        addEventListener("pagehide", resolve, { once: true });
      });
    navigator.locks.request("alipes.events", steal ? { steal } : {}, hold).catch(() => {
      this.#stream?.close(); // another tab took it
      this.#stream = null;
      this.#queue(false);
    });
  }

  /** A tab that holds the stream and passes nothing on is asleep: take over. */
  #check() {
    if (this.#stream || document.hidden || performance.now() - this.#heard < 2 * SILENCE_MS) return;
    this.#heard = performance.now();
    this.#queue(true);
  }

  #open() {
    /** @type {StreamHandlers} */
    const handlers = {
      onEvent: (type, data, id) => {
        this.#lastId = id || this.#lastId;
        this.#channel?.postMessage({ type, data, id: this.#lastId });
        tellListeners(type, data);
      },
      onData: () => this.#channel?.postMessage({ type: "", data: null, id: this.#lastId }),
      onOpen: () => tellListeners("open", {}),
    };
    this.#stream = new Stream("events", handlers, { lastId: this.#lastId });
  }

  /** @param {{type: string, data: any, id: string}} message */
  #receive(message) {
    this.#heard = performance.now();
    this.#lastId = message.id || this.#lastId;
    connected.value = true;
    if (message.type) tellListeners(message.type, message.data);
  }
}

export const events = new SharedEvents();
loggedIn.subscribe((now) => {
  if (now) events.start();
});
