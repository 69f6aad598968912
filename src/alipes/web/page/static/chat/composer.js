// Where a message is written: grows with its text, keeps drafts, takes pictures and files, completes commands.
import { html, signal, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { randomId } from "../storage.js";
import { Button, Icon, toast } from "../ui.js";
import { Lazy } from "./lazy.js";
import { findCommand, listCommands } from "./conversation.js";
import { NEW, findDraft, keepDraft } from "./drafts.js";
import { outbox } from "./outbox.js";

/** @typedef {import("./conversation.js").Command} Command */
/**
 * @typedef {object} Attachment
 * @property {string} id @property {string} name @property {number} size @property {string} [preview] @property {string} [image] A data URL.
 * @property {string} [file] Id of the upload. @property {string} [problem] @property {boolean} [busy]
 */

const phone = matchMedia("(pointer: coarse) and (max-width: 48rem)");
/** @type {Record<string, string>} */
export const BUSY = { steer: "Steer", queue: "Queue", interrupt: "Interrupt" };
/** @type {Record<string, string>} */
const BUSY_HELP = {
  steer: "The running task reads it at its next step", queue: "It waits for the running task", interrupt: "It stops the running task",
};
/** Text to put into the composer, by another part of the page. */
export const insertion = signal("");

/**
 * @param {{conversation: import("./conversation.js").Conversation | null, options: any, onCommand: (text: string) => Promise<unknown>,
 *   onNew: (message: {key: string, text: string, body: any}) => void, children?: any}} props
 */
export function Composer({ conversation, options, onCommand, onNew, children }) {
  const id = conversation?.id ?? NEW;
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const draft = useRef(findDraft(id));
  const checking = useRef(false);
  const [text, setText] = useState(draft.current.text);
  const [files, setFiles] = useState(/** @type {Attachment[]} */ ([]));
  const [over, setOver] = useState(false);
  const [busyMode, setBusyMode] = useState("");
  const running = Boolean(conversation?.isRunning.value);
  const mode = busyMode || conversation?.session.value?.busy || "steer";

  useLayoutEffect(() => grow(area.current), [text]);
  useEffect(() => {
    if (!phone.matches) area.current?.focus({ preventScroll: true });
  }, [id]);
  useEffect(() => {
    if (!insertion.value) return;
    change(insertion.value);
    insertion.value = "";
    area.current?.focus();
  }, [insertion.value]);

  /** @param {string} next */
  const change = (next) => {
    draft.current = { text: next, key: draft.current.text ? draft.current.key : randomId() };
    keepDraft(id, draft.current);
    setText(next);
  };
  const send = async () => {
    const message = draft.current.text;
    const ready = files.filter((each) => !each.problem);
    if (!message.trim() && !ready.length) return;
    if (files.some((each) => each.busy)) return toast("A file is still being uploaded.");
    if (message.startsWith("/")) {
      if (checking.current) return;
      checking.current = true;
      const known = await findCommand(id, message);
      checking.current = false;
      if (known) {
        change("");
        return onCommand(message.trim());
      }
    }
    const { key } = draft.current;
    const images = ready.flatMap((each) => (each.image ? [each.image] : []));
    const uploads = ready.flatMap((each) => (each.file ? [each.file] : []));
    const input = message.trim() ? message : "See the attachment.";
    const body = { input, ...(images.length && { images }), ...(uploads.length && { files: uploads }), ...options };
    draft.current = { text: "", key: randomId() };
    keepDraft(id, draft.current);
    setText("");
    setFiles([]);
    if (!conversation) return onNew({ key, text: message, body });
    outbox.add({ key, session: id, text: message, body: { ...body, session: id, ...(running && { busy: mode }) } });
    conversation.transcript?.scrollToEnd();
  };
  /** @param {Iterable<File>} added */
  const attach = async (added) => {
    const all = [...added]; // the browser empties its list afterwards
    const { addFile } = await import("./attachments.js");
    for (const file of all) addFile(file, setFiles);
  };
  const completion = useCompletion(id, text);
  /** @param {string} name */
  const complete = (name) => {
    change(`/${name} `);
    area.current?.focus();
  };
  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    if (event.isComposing || event.keyCode === 229) return;
    if (completion.handleKey(event, complete)) return;
    if (event.key === "Enter" && !event.shiftKey && !phone.matches) {
      event.preventDefault();
      send();
    }
  };
  return html`<form class=${`composer${over ? " over" : ""}`} onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); send(); }}
    onDragOver=${(/** @type {DragEvent} */ event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)}
    onDrop=${(/** @type {DragEvent} */ event) => { event.preventDefault(); setOver(false); attach(event.dataTransfer?.files ?? []); }}>
    ${completion.commands.length > 0 && html`<${Lazy} path="./completion.js" ...${completion} choose=${complete} />`}
    ${files.length > 0 && html`<${Lazy} path="./attachments.js" files=${files} setFiles=${setFiles} />`}
    <textarea ref=${area} rows="1" dir="auto" value=${text} aria-label="Message" placeholder=${running ? "Add to the running task" : "Message alipes"}
      enterkeyhint=${phone.matches ? "enter" : "send"} aria-controls=${completion.commands.length > 0 ? "commands" : undefined}
      aria-activedescendant=${completion.commands.length ? `command-${completion.at}` : undefined}
      onInput=${(/** @type {Event} */ event) => change(/** @type {HTMLTextAreaElement} */ (event.currentTarget).value)} onKeyDown=${onKey}
      onPaste=${(/** @type {ClipboardEvent} */ event) => {
        const pasted = [...(event.clipboardData?.files ?? [])];
        if (pasted.length) { event.preventDefault(); attach(pasted); }
      }}></textarea>
    <div class="composer-row">
      <label class="button quiet icon-only small" title="Attach files"><span class="hidden">Attach files</span><${Icon} name="attach" size=${16} />
        <input type="file" multiple class="hidden" onChange=${(/** @type {Event} */ event) => {
          const input = /** @type {HTMLInputElement} */ (event.currentTarget);
          attach([...(input.files ?? [])]);
          input.value = "";
        }} /></label>
      <span class=${`choices${running ? " busy" : ""}`}>${children}</span>
      ${running && text.trim() && html`<select class="quiet-select" aria-label="While a task is running" title=${BUSY_HELP[mode]} value=${mode}
        onChange=${(/** @type {Event} */ event) => setBusyMode(/** @type {HTMLSelectElement} */ (event.currentTarget).value)}>
        ${Object.entries(BUSY).map(([value, label]) => html`<option value=${value} selected=${value === mode}>${label}</option>`)}</select>`}
      ${running && html`<${Button} small icon="stop" class="stop" onClick=${() => conversation?.stop()} title="Stop (Esc)">Stop<//>`}
      <${Button} kind="primary" small icon="send" label="Send" type="submit" disabled=${!text.trim() && !files.length} />
    </div>
  </form>`;
}

/** @param {HTMLTextAreaElement | null} area */
function grow(area) {
  if (!area || CSS.supports("field-sizing", "content")) return;
  area.style.height = "auto";
  area.style.height = `${Math.min(area.scrollHeight, innerHeight * 0.4)}px`;
}

/** @param {string} session @param {string} text */
function useCompletion(session, text) {
  const [all, setAll] = useState(/** @type {Command[]} */ ([]));
  const [at, setAt] = useState(0);
  const [closedFor, setClosedFor] = useState("");
  const typed = /^\/[\w-]*$/.test(text) && closedFor !== text;
  useEffect(() => {
    if (typed) listCommands(session).then(setAll);
  }, [typed, session]);
  const commands = typed ? all.filter((each) => each.name.startsWith(text.slice(1))).slice(0, 50) : [];
  const index = Math.min(at, commands.length - 1);
  /** @param {KeyboardEvent} event @param {(name: string) => void} choose @returns {boolean} Whether the key was used. */
  const handleKey = (event, choose) => {
    const current = commands[index];
    if (!current) return false;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      setAt((index + (event.key === "ArrowDown" ? 1 : commands.length - 1)) % commands.length);
    } else if (event.key === "Tab" || (event.key === "Enter" && current.name !== text.slice(1))) choose(current.name);
    else if (event.key === "Escape") setClosedFor(text);
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  };
  return { commands, at: index, handleKey };
}
