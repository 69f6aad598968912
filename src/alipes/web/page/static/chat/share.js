// Sharing a conversation: one HTML file, or a link that shows it until it expires.
import { html, useEffect, useState } from "../vendor/preact.js";
import { del, download, get, post } from "../api.js";
import { Button, CodeBlock, Dialog, Time, toast } from "../ui.js";

/** @typedef {{id: string, created: number, expires: number, link?: string}} Share */

/** @param {{conversation: import("./conversation.js").Conversation, onClose: () => void}} props */
export default function ShareDialog({ conversation: { id }, onClose }) {
  const [shares, setShares] = useState(/** @type {Share[]} */ ([]));
  const [days, setDays] = useState("7");
  const [made, setMade] = useState(/** @type {Share | null} */ (null));
  const load = () => get(`sessions/${id}/shares`).then((found) => setShares(found.shares));
  useEffect(() => {
    load();
  }, []);
  const make = async () => {
    setMade(await post(`sessions/${id}/shares`, { days: Number(days) }));
    await load();
  };
  /** @param {string} share */
  const end = async (share) => {
    await del(`shares/${share}`);
    if (made?.id === share) setMade(null);
    toast("The link was ended.");
    await load();
  };
  return html`<${Dialog} title="Share the conversation" onClose=${onClose}>
    <p>Everybody who has the link can read this conversation as it is now, without a login. They see nothing else, and nothing that is said later. Results of tools are in it: look before you share.</p>
    <p class="answers share-acts"><label>Expires after <select value=${days} onChange=${(/** @type {Event} */ event) => setDays(/** @type {HTMLSelectElement} */ (event.currentTarget).value)}>
      ${[["1", "a day"], ["7", "a week"], ["30", "30 days"], ["365", "a year"]].map(([value, label]) => html`<option value=${value} selected=${value === days}>${label}</option>`)}</select></label>
      <${Button} kind="primary" icon="link" onClick=${make}>Make a link<//>
      <${Button} icon="download" onClick=${() => download(`sessions/${id}/export/html`, "conversation.html", { shared: "true" })}>Save as a file<//></p>
    ${made?.link && html`<${CodeBlock} text=${made.link} label="Link" /><p class="muted small">It is not shown again.</p>`}
    ${shares.length > 0 && html`<h3>Links</h3><ul class="jobs share-links">${shares.map((each) => html`<li key=${each.id}><span>Made <${Time} value=${each.created} />, expires <${Time} value=${each.expires} /></span>
      <${Button} small kind="danger" onClick=${() => end(each.id)}>End<//></li>`)}</ul>`}
  <//>`;
}
