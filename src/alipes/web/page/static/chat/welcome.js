// A new conversation: the model and the folder it works in, and examples of what can be asked.
import { html, useEffect, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { mayChange } from "../state.js";
import { insertion } from "./composer.js";
import { useModels } from "./models.js";

const EXAMPLES = [
  ["Explain this project", "Look at this folder and explain what the project does and how it is built."],
  ["Find out and compare", "Search the web for … and compare the three best options in a table, with sources."],
  ["Do it every morning", "Every weekday at 8, check … and send me a summary of what is new."],
  ["Fix a failing test", "Run the tests, find out why … fails, and propose a fix before you change anything."],
];

export default function Welcome() {
  const known = useModels();
  const [folder, setFolder] = useState("");
  useEffect(() => {
    get("server").then((server) => setFolder(server.workdir), () => {});
  }, []);
  return html`<div class="welcome"><div>
    <h2>What should we work on?</h2>
    <p class="muted small">${known.default && html`Answered by <bdi>${known.default}</bdi>`}${folder && html`${known.default ? ", in " : "In "}<bdi>${folder}</bdi>`}</p>
    ${mayChange.value && html`<ul class="examples">${EXAMPLES.map(([title, text = ""]) => html`<li key=${title}><button type="button" onClick=${() => (insertion.value = text)}>
      <strong>${title}</strong> <span class="muted">${text}</span></button></li>`)}</ul>`}
  </div></div>`;
}
