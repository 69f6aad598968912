// Browsers: which are logged in, logging one out, and a link to log in another.
import { html, useState } from "../vendor/preact.js";
import { del, get, logout, post } from "../api.js";
import { mayChange } from "../state.js";
import { Badge, Button, CodeBlock, confirm, Empty, Field, Select, Table, Text, Time, toast } from "./controls.js";
import { Loaded, Page, Section, textOf, useResource } from "./common.js";

/** @typedef {{id: string | number, name?: string, scope?: string, created?: number, last_seen?: number, expires?: number, current?: boolean}} Browser */
/** @typedef {{link: string, code: string, expires?: number}} Link */

function NewLink() {
  const [name, setName] = useState("");
  const [scope, setScope] = useState("admin");
  const [link, setLink] = useState(/** @type {Link | null} */ (null));
  const [problem, setProblem] = useState("");
  const make = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setProblem("");
    try {
      setLink(/** @type {Link} */ (await post("/v1/browsers", { scope, ...(name.trim() ? { name: name.trim() } : {}) })));
    } catch (error) {
      setProblem(textOf(error));
    }
  };
  return html`<${Section} title="Log in another browser">
    <form class="inline-form" onSubmit=${make}><${Field} label="Name" value=${name} onInput=${setName} placeholder="Phone" error=${problem} />
      <${Select} label="It may" value=${scope} onChange=${setScope} options=${[{ value: "admin", label: "do everything" }, { value: "read", label: "only read" }]} /><${Button} type="submit">Make a link<//></form>
    ${link && html`<div class="stack" role="status"><p>Open this link in the other browser. It works once${link.expires ? html`, until <${Time} value=${link.expires} full />` : null}. Do not send it to anybody.</p><${CodeBlock} text=${link.link} label="Login link" /></div>`}
  <//>`;
}

/** @param {{route?: unknown}} _props */
export default function Screen(_props) {
  const found = useResource(() => /** @type {Promise<{browsers: Browser[]}>} */ (get("/v1/browsers")), [], ["browser"]);
  const revoke = (/** @type {Browser} */ browser) => async () => {
    const text = browser.current ? "This is the browser that you use now." : "It needs a new link to log in again.";
    if (!(await confirm({ title: `Log out ${browser.name || "this browser"}?`, text, action: "Log out", danger: true }))) return;
    if (browser.current) return logout();
    await del(`/v1/browsers/${encodeURIComponent(browser.id)}`);
    toast("Logged out.");
    await found.reload();
    return undefined;
  };
  return html`<${Page} title="Browsers" lead="Browsers that are logged in to this page. One that is not used for 30 days is logged out.">
    <${Loaded} resource=${found}>${(/** @type {{browsers: Browser[]}} */ { browsers }) => (browsers.length ? html`<${Table} caption="Browsers" rows=${browsers} keyOf=${(/** @type {Browser} */ row) => row.id} columns=${[
      { name: "name", label: "Name", render: (/** @type {Browser} */ row) => html`<strong><${Text} value=${row.name || "Browser"} /></strong> ${row.current ? html`<${Badge} kind="accent">this one<//>` : null}` },
      { name: "scope", label: "May", render: (/** @type {Browser} */ row) => (row.scope === "read" ? "only read" : "do everything") },
      { name: "last_seen", label: "Last used", render: (/** @type {Browser} */ row) => html`<${Time} value=${row.last_seen} />` },
      { name: "created", label: "Logged in", render: (/** @type {Browser} */ row) => html`<${Time} value=${row.created} />` },
      { name: "act", label: "Action", hideLabel: true, align: "end", render: (/** @type {Browser} */ row) => (mayChange.value || row.current ? html`<${Button} small kind="danger" onClick=${revoke(row)}>Log out<//>` : null) },
    ]} />` : html`<${Empty} icon="device" title="No browsers" />`)}<//>
    ${mayChange.value ? html`<${NewLink} />` : null}
  <//>`;
}
