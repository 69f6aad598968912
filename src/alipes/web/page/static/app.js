// The page: login screen, sidebar, and the screen that the address names.
import { computed, html, render, signal, useEffect, useRef, useState } from "./vendor/preact.js";
import { loggedIn } from "./api.js";
import { pageTitle, route } from "./router.js";
import { connected } from "./live.js";
import { Sidebar, drawer } from "./chat/list.js";
import { Lazy } from "./chat/lazy.js";
import { isShortcut } from "./appearance.js";
import { unseen } from "./notices.js";
import { waiting } from "./state.js";
import { IconButton, loadStyle } from "./ui.js";
import "./chat/outbox.js";

/** @type {Record<string, string>} Screens by the first word of the address, and their titles. */
export const SCREENS = {
  inbox: "Inbox", search: "Search", usage: "Usage", schedules: "Schedules", skills: "Skills", memory: "Memory",
  mcp: "MCP servers", agents: "Other agents", plugins: "Plugins", people: "People", settings: "Settings", log: "Log", doctor: "Doctor",
  cluster: "Cluster", browsers: "Browsers",
};

/** @type {Record<string, any>} */
const loaded = {};

/** A screen that is loaded when it is first shown. @param {{name: string, route: import("./router.js").Route}} props */
function LazyScreen({ name, route }) {
  const [, redraw] = useState(0);
  const problem = useRef("");
  const isChat = name === "chat";
  useEffect(() => {
    if (loaded[name]) return;
    const path = isChat ? "./chat/chat.js" : `./screens/${name}.js`;
    const styles = isChat ? Promise.resolve() : loadStyle("./screens.css");
    Promise.all([import(path), styles])
      .then(([module]) => (loaded[name] = module.default))
      .catch(() => (problem.current = "This screen could not be loaded. Check the connection."))
      .finally(() => redraw((count) => count + 1));
  }, [name]);
  const Screen = loaded[name];
  if (Screen && isChat) return html`<${Screen} route=${route} />`;
  if (Screen) return html`<div class="screen"><${Screen} route=${route} /></div>`;
  return html`<div class="screen-wait" role=${problem.current ? "alert" : null}>${problem.current}
    ${problem.current && html` <button type="button" class="link" onClick=${() => location.reload()}>Reload the page</button>`}</div>`;
}

function App() {
  if (redeeming.value) return html`<main class="login"><h1>alipes</h1><p role="status">Logging in …</p></main>`;
  if (!loggedIn.value) return html`<${Lazy} path="../login.js" />`;
  const now = route.value;
  const name = now.name === "c" || now.name === "new" ? "chat" : Object.hasOwn(SCREENS, now.name) ? now.name : "";
  const title = SCREENS[name];
  useTitle(title);
  return html`<a class="skip" href="#main" onClick=${skipToMain}>Skip to content</a>
    <${Sidebar} screens=${SCREENS} />
    <div class="shade" hidden=${!drawer.value} onClick=${() => (drawer.value = false)}></div>
    <main class="main" id="main" tabindex="-1" inert=${drawer.value}>
      ${!connected.value && html`<div class="offline" role="status">Not connected. Trying again …</div>`}
      ${name
        ? html`<${LazyScreen} key=${name} name=${name} route=${now} />`
        : html`<${NoScreen} name=${now.name} />`}
    </main>`;
}

/** @param {{name: string}} props */
function NoScreen({ name }) {
  useTitle("Not found");
  return html`<div class="screen-wait"><${IconButton} icon="menu" label="Open the menu" class="only-phone" onClick=${() => (drawer.value = true)} />
    <h1>There is no screen “${name.slice(0, 100)}”.</h1><p><a href="#/new">Start a conversation</a> or choose a screen in the menu.</p></div>`;
}

/** @param {string | undefined} title */
function useTitle(title) {
  useEffect(() => {
    if (title) pageTitle.value = title;
  }, [title]);
}

/** @param {Event} event */
function skipToMain(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

/** Open questions, and answers that arrived while nobody looked, are counted in the title of the tab. */
const tabTitle = computed(() => {
  const count = waiting.value + unseen.value;
  return `${count ? `(${count}) ` : ""}${pageTitle.value ? `${pageTitle.value} · ` : ""}alipes`;
});
tabTitle.subscribe((title) => (document.title = title));

/** The width of a scrollbar, which is kept free on both sides of what scrolls. */
function measureGutter() {
  const probe = document.createElement("div");
  Object.assign(probe.style, { position: "fixed", visibility: "hidden", overflow: "auto", scrollbarGutter: "stable", width: "5rem" });
  document.body.append(probe);
  document.documentElement.style.setProperty("--gutter", `${probe.offsetWidth - probe.clientWidth}px`);
  probe.remove();
}

const redeeming = signal(location.hash.startsWith("#login="));

async function start() {
  const root = /** @type {HTMLElement} */ (document.getElementById("page"));
  root.replaceChildren();
  measureGutter();
  render(html`<${App} />`, root);
  if (redeeming.value) {
    const code = location.hash.slice("#login=".length);
    history.replaceState(null, "", "#/");
    await (await import("./login.js")).redeem(code);
    redeeming.value = false;
  }
}

addEventListener("hashchange", async () => {
  if (!location.hash.startsWith("#login=")) return;
  const code = location.hash.slice("#login=".length);
  history.replaceState(null, "", "#/");
  (await import("./login.js")).redeem(code);
});
addEventListener("keydown", async (event) => {
  if (!loggedIn.value) return;
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    await loadStyle("./screens.css");
    (await import("./palette.js")).openPalette();
  } else if (isShortcut(event)) {
    event.preventDefault();
    (await import("./shortcuts.js")).run(/^[?/]$/.test(event.key) ? event.key : event.code.slice(3).toLowerCase());
  }
});
// a keyboard on the screen covers the page in some browsers: what is written and the stop button stay above it
visualViewport?.addEventListener("resize", () => {
  const covered = visualViewport && visualViewport.scale === 1 && innerHeight - visualViewport.height > 100;
  document.documentElement.style.setProperty("--height", covered ? `${visualViewport?.height}px` : "");
});
start();
