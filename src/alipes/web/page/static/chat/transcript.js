// The messages of a conversation in sheets of 50. Sheets that are far away are not laid out; a reader is never moved.
import { signal } from "../vendor/preact.js";
import { get } from "../api.js";
import { MessageNodes, buildEnding, items, make, setNumber, setVersions } from "./nodes.js";

const SHEET = 50;
const PER_FRAME = 6;
const NEAR_PX = 4_000;
const END_PX = 48;

/** @typedef {import("./nodes.js").Item} Item */
/** @typedef {{status?: string, detail?: string, created?: number, ended?: number, versions?: string[]}} RunFacts */
/**
 * @typedef {object} Page
 * @property {Item[]} messages @property {number} first @property {number} last @property {number} total
 * @property {boolean} more_before @property {boolean} more_after @property {Record<string, RunFacts>} [runs]
 */

export class Transcript {
  /** @param {string} session @param {HTMLElement} scroller @param {HTMLElement} sheets */
  constructor(session, scroller, sheets) {
    this.session = session;
    this.scroller = scroller;
    this.sheets = sheets;
    this.nodes = new MessageNodes(session);
    /** Whether the reader is at the end, and stays there when something is added. */
    this.atEnd = signal(true);
    /** Whether newer messages exist that are not loaded. */
    this.moreAfter = signal(false);
    this.total = 0;
    this.first = 0;
    this.last = 0;
    this.#observer = new ResizeObserver(() => this.#keepEnd());
    this.#observer.observe(sheets.parentElement ?? sheets);
    this.#observer.observe(scroller);
    scroller.addEventListener("scroll", this.#onScroll, { passive: true });
  }

  #observer;
  #moreBefore = false;
  #loading = false;
  #closed = false;
  #height = 0;

  close() {
    this.#closed = true;
    this.#observer.disconnect();
    this.scroller.removeEventListener("scroll", this.#onScroll);
  }

  #onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const below = scrollHeight - scrollTop - clientHeight;
    // a taller text or a smaller window also scrolls: only a person's scrolling leaves the end
    if (scrollHeight === this.#height || below <= END_PX) this.atEnd.value = below <= END_PX && !this.moreAfter.value;
    this.#height = scrollHeight;
    if (scrollTop < NEAR_PX) this.loadOlder();
    if (below < NEAR_PX) this.loadNewer();
  };

  #keepEnd() {
    if (this.atEnd.value) this.scrollToEnd();
    else this.#height = this.scroller.scrollHeight;
  }

  scrollToEnd() {
    this.atEnd.value = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.#height = this.scroller.scrollHeight;
  }

  /** Load the newest messages, or those around one. @param {number} [number] @returns {Promise<Page>} */
  async open(number) {
    const page = await this.#fetch(number ? { around: number } : {});
    if (this.#closed) return page;
    this.nodes.calls.clear();
    this.first = page.first;
    this.last = page.last;
    this.#moreBefore = page.more_before;
    this.moreAfter.value = page.more_after;
    this.sheets.replaceChildren(this.#buildSheet(page));
    if (number) this.showMessage(number);
    else this.scrollToEnd();
    return page;
  }

  /** @param {number} number @returns {boolean} Whether it is loaded. */
  showMessage(number) {
    const found = /** @type {HTMLElement | null} */ (this.sheets.querySelector(`[data-number="${number}"]`));
    if (!found) return false;
    this.atEnd.value = false;
    found.scrollIntoView({ block: "center" });
    found.tabIndex = -1;
    found.focus({ preventScroll: true });
    found.classList.add("found");
    setTimeout(() => found.classList.remove("found"), 2_500);
    return true;
  }

  async loadOlder() {
    if (this.#loading || !this.#moreBefore) return;
    await this.#load({ before: this.first }, async (page) => {
      this.first = page.first;
      this.#moreBefore = page.more_before && page.messages.length > 0;
      await this.#insertAbove(page);
    });
  }

  async loadNewer() {
    if (this.#loading || !this.moreAfter.value) return;
    await this.#load({ after: this.last }, async (page) => {
      this.last = page.last || this.last;
      this.moreAfter.value = page.more_after && page.messages.length > 0;
      this.sheets.append(this.#buildSheet(page));
    });
  }

  /** @param {Record<string, number>} where @param {(page: Page) => Promise<void>} show */
  async #load(where, show) {
    this.#loading = true;
    const page = await this.#fetch(where).catch(() => null);
    if (page && !this.#closed) await show(page);
    this.#loading = false;
    if (page && !this.#closed) requestAnimationFrame(this.#onScroll); // a fast reader may be at the border again
  }

  /** @param {Record<string, number>} where @returns {Promise<Page>} */
  async #fetch(where) {
    const page = await get(`sessions/${this.session}/messages`, { limit: SHEET, ...where });
    this.total = page.total ?? 0;
    return page;
  }

  /** @param {Page} page @returns {HTMLElement} */
  #buildSheet(page) {
    return make("section", "sheet", ...this.#buildRange(page, 0, page.messages.length));
  }

  /** @param {Page} page @param {number} from @param {number} to @returns {HTMLElement[]} */
  #buildRange(page, from, to) {
    const built = [];
    for (let index = from; index < to; index++) {
      const item = /** @type {Item} */ (page.messages[index]);
      const next = page.messages[index + 1];
      const node = this.nodes.build(item);
      if (node) built.push(node);
      if (node && item.role === "user" && item.run) setVersions(node, item.run, page.runs?.[item.run]?.versions);
      const ends = item.run && next?.run !== item.run && (next || !page.more_after);
      const ending = ends ? buildEnding(item.run ?? "", page.runs?.[item.run ?? ""] ?? {}) : null;
      if (ending) built.push(ending);
    }
    return built;
  }

  /** Insert a sheet, some messages per frame, and keep what is read in its place. @param {Page} page */
  async #insertAbove(page) {
    const sheet = make("section", "sheet fresh");
    const anchor = /** @type {HTMLElement | null} */ (this.sheets.firstElementChild);
    this.sheets.prepend(sheet);
    for (let to = page.messages.length; to > 0 && !this.#closed; to -= PER_FRAME) {
      const nodes = this.#buildRange(page, Math.max(0, to - PER_FRAME), to);
      const before = anchor?.getBoundingClientRect().top ?? 0;
      sheet.prepend(...nodes);
      const moved = (anchor?.getBoundingClientRect().top ?? 0) - before;
      if (Math.abs(moved) >= 1) this.scroller.scrollTop += moved;
      this.#height = this.scroller.scrollHeight;
      await new Promise((resolve) => setTimeout(resolve, 4));
    }
    // its height is known from now on, although it is not laid out while it is far away
    sheet.style.setProperty("contain-intrinsic-block-size", `auto ${sheet.offsetHeight}px`);
    sheet.classList.remove("fresh");
  }

  /** Add a node at the end. @param {HTMLElement} node */
  append(node) {
    let sheet = /** @type {HTMLElement | null} */ (this.sheets.lastElementChild);
    if (!sheet || !sheet.classList.contains("open") || sheet.childElementCount >= SHEET) {
      sheet?.classList.remove("open");
      sheet = make("section", "sheet open");
      this.sheets.append(sheet);
    }
    sheet.append(node);
  }

  /** @param {string} run @param {number} said @returns {HTMLElement | null} The node of this message of a run. */
  find(run, said) {
    return this.sheets.querySelector(`[data-run="${CSS.escape(run)}"][data-said="${said}"]`);
  }

  /** @param {string} run @returns {number} How many messages of the run are shown or known. */
  countSaid(run) {
    let most = 0;
    for (const node of this.sheets.querySelectorAll(`[data-run="${CSS.escape(run)}"]`)) {
      most = Math.max(most, Number(/** @type {HTMLElement} */ (node).dataset.said ?? 0));
    }
    return most;
  }

  /**
   * Fetch what was added since: numbers for messages that were followed live, and new messages of others.
   * @returns {Promise<Item[]>}
   */
  async update() {
    if (this.moreAfter.value) return [];
    const before = this.total;
    const page = await this.#fetch({ after: this.last, limit: 500 });
    if (this.#closed) return [];
    if (page.total < before) return (await this.open()).messages;
    page.messages.forEach((item, index) => {
      this.#place(item, page.runs?.[item.run ?? ""] ?? {});
      this.last = item.number;
      const next = page.messages[index + 1];
      if (item.run && next?.run !== item.run) this.addEnding(item.run, page.runs?.[item.run] ?? {});
    });
    return page.messages;
  }

  /** @param {Item} item @param {RunFacts} facts */
  #place(item, facts) {
    const known = item.run && item.said ? this.find(item.run, item.said) : null;
    const isWhole = known && !(item.attached?.length && !known.querySelector(":scope > .files, .edit-message"));
    const node = isWhole ? known : this.nodes.build(item);
    if (isWhole) setNumber(known, { ...items.get(known), ...item });
    else if (known && node) known.replaceWith(node);
    else if (node) this.append(node);
    if (node && item.role === "user" && item.run) setVersions(node, item.run, facts.versions);
  }

  /** @param {string} run @param {RunFacts} facts */
  addEnding(run, facts) {
    const known = this.sheets.querySelector(`.ending[data-run="${CSS.escape(run)}"]`);
    const node = known ? null : buildEnding(run, facts);
    if (node) this.append(node);
  }
}
