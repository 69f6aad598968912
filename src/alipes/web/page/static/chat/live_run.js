// Shows a run while it happens: deltas in steps of a frame, finished messages in their place.
import { MarkdownWriter } from "../markdown.js";
import { followRun } from "../live.js";
import { foldedText, make, setNumber } from "./nodes.js";

/** @typedef {import("./nodes.js").Item} Item */

/** @param {any} message A message of the journal. @param {any} event @returns {Item} */
export function toItem(message, event) {
  const parts = message.parts ?? [];
  const of = (/** @type {string} */ type) => parts.filter((/** @type {any} */ part) => part.type === type);
  const images = (/** @type {any[]} */ all) => all.map((each) => ({ type: each.media_type, data: each.data }));
  return {
    number: 0,
    role: message.role,
    text: of("text").map((/** @type {any} */ part) => part.text).join(""),
    thinking: of("thinking").map((/** @type {any} */ part) => part.text).join("\n"),
    calls: of("call"),
    results: of("result").map((/** @type {any} */ part) => ({ outcome: "ok", ...part, images: images(part.images ?? []), files: [] })),
    images: images(of("image")),
    model: event.model,
    usage: event.usage,
    partial: event.partial,
    created: Date.now() / 1000,
  };
}

/** The words of a person's message, without its files: the model reads those below the words. @param {string} text */
const withoutFiles = (text) => text.replace(/\n\n<attachment [^]*$/, "").replace(/\n*\[\w+ ?[^\n\]]* saved at [^\n\]]+\]/g, "");

/**
 * @typedef {object} RunWatcher
 * @property {(run: string, item: Item) => void} onSaid A message is complete.
 * @property {(run: string, event: any) => void} onEnd
 * @property {(type: string, event: any) => void} onQuestion Something was asked or answered.
 * @property {(text: string) => void} onNotice
 */

export class LiveRun {
  /** @param {string} run @param {import("./transcript.js").Transcript} transcript @param {HTMLElement} tail Where its unfinished message is shown. @param {RunWatcher} watcher */
  constructor(run, transcript, tail, watcher) {
    this.run = run;
    this.#transcript = transcript;
    this.#watcher = watcher;
    this.#box = make("div", "live");
    tail.append(this.#box);
    this.#said = transcript.countSaid(run);
    const lastId = this.#said ? String(this.#said) : "";
    this.#stream = followRun(run, {
      onEvent: (type, data, id) => this.#handle(type, data, id),
      onRefused: () => this.#end({ turn: run, ending: "" }),
    }, lastId);
  }

  #transcript;
  #watcher;
  #box;
  #stream;
  #said;
  #text = "";
  #thinking = "";
  #frame = 0;
  #timer = 0;
  /** @type {MarkdownWriter | null} */
  #writer = null;
  /** @type {HTMLElement | null} */
  #body = null;
  /** @type {HTMLElement | null} */
  #thought = null;

  close() {
    this.#stream.close();
    this.#clear();
    this.#box.remove();
  }

  /** @param {string} type @param {any} event @param {string} id */
  #handle(type, event, id) {
    switch (type) {
      case "text_delta":
        this.#text += event.text;
        return this.#schedule();
      case "thinking_delta":
        this.#thinking += event.text;
        return this.#schedule();
      case "said":
        return this.#say(event, Number.parseInt(id, 10));
      case "retracted":
        return this.#clear();
      case "tool_started":
        return this.#transcript.nodes.addCallState(event.call, (line) => line.start());
      case "tool_progress":
        return this.#transcript.nodes.calls.get(event.call_id)?.setProgress(event.text);
      case "tool_finished":
        return this.#transcript.nodes.addCallState(event.call, (line) =>
          line.setResult({ outcome: "ok", ...event.result, images: [], files: [], seconds: event.seconds }, 0));
      case "noted":
      case "turn_parked":
        return this.#watcher.onNotice(event.text);
      case "approval_asked":
      case "asked":
      case "approval_answered":
      case "heard":
        return this.#watcher.onQuestion(type, event);
      case "turn_ended":
        return this.#end(event);
    }
  }

  /** @param {any} event @param {number} number Its place among the messages of the run. */
  #say(event, number) {
    const item = { ...toItem(event.message, event), run: this.run, said: number };
    if (item.role === "assistant" && this.#writer && this.#writer.text + this.#text === item.text) this.#flush();
    const streamed = this.#writer && this.#writer.text === item.text ? this.#body : null;
    this.#writer?.end();
    this.#said = Math.max(this.#said, number);
    if (!this.#transcript.moreAfter.value && !this.#transcript.find(this.run, number)) {
      const words = item.role === "user" ? withoutFiles(item.text ?? "") : item.text;
      this.#show({ ...item, text: words }, streamed);
      if (words !== item.text) this.#transcript.update().catch(() => {}); // its files; else they come with the next update
    }
    this.#clear();
    this.#watcher.onSaid(this.run, item);
  }

  /** @param {Item} item @param {HTMLElement | null} streamed The nodes of its text, if they are complete. */
  #show(item, streamed) {
    const node = this.#transcript.nodes.build(streamed ? { ...item, text: "" } : item);
    if (!node) return;
    setNumber(node, item);
    if (streamed) {
      const before = node.querySelector(":scope > .folded") ?? node.querySelector(":scope > h2");
      before?.after(streamed);
    }
    this.#transcript.append(node);
  }

  #schedule() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => this.#flush());
    if (document.hidden) this.#timer ||= setTimeout(() => this.#flush(), 1_000); // no frames there
  }

  #flush() {
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#timer);
    this.#frame = this.#timer = 0;
    if (this.#thinking) {
      if (!this.#thought) {
        const fold = foldedText("Thinking …", "");
        this.#thought = /** @type {HTMLElement} */ (fold.lastElementChild);
        this.#box.append(make("article", "msg assistant", fold));
      }
      this.#thought.append(this.#thinking);
      this.#thinking = "";
    }
    if (!this.#text) return;
    if (!this.#writer) {
      this.#body = make("div", "body");
      this.#writer = new MarkdownWriter(this.#body);
      const article = this.#box.querySelector("article") ?? make("article", "msg assistant");
      article.append(this.#body);
      this.#box.append(article);
    }
    this.#writer.write(this.#text);
    this.#text = "";
  }

  /** Forget what was shown since the last message: it follows whole, or again. */
  #clear() {
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#timer);
    this.#frame = this.#timer = 0;
    this.#text = this.#thinking = "";
    this.#writer = this.#body = this.#thought = null;
    this.#box.replaceChildren();
  }

  /** @param {any} event */
  #end(event) {
    this.#clear();
    for (const line of this.#transcript.nodes.calls.values()) line.end();
    this.close();
    this.#watcher.onEnd(this.run, event);
  }
}
