// A conversation: header, transcript, composer.
import { html } from "../vendor/preact.js";

/** @param {{route: import("../router.js").Route}} props */
export default function Chat({ route }) {
  return html`<p>${route.name}</p>`;
}
