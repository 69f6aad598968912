// A client of remote tools that is a page. README.md describes the protocol; nothing is loaded from elsewhere.

const PROTOCOL = 1;
const FINAL = new Set([4400, 4401, 4409]); // trying again would end the same
const KEPT = 50; // calls that stay on the page
const instance = crypto.randomUUID();
const $ = (id) => document.getElementById(id);

// --- what this page can do. `run` gets the arguments, a place to show something, and a signal for the end.

const string = (description) => ({ type: "string", description });
const object = (properties) => ({ type: "object", properties, required: Object.keys(properties) });

const TOOLS = {
  page_color: {
    about: "paints the top of this page",
    spec: {
      description: "Paint the top of the person's page in a colour.",
      schema: object({ color: string("any CSS colour, such as teal or #ff8800") }),
      timeout: 10,
    },
    async run({ color }, { body }) {
      if (!CSS.supports("color", color)) throw new Error(`${color} is not a CSS colour`);
      document.documentElement.style.setProperty("--paint", color);
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.background = color;
      show(body, color).prepend(swatch);
      return `the page is ${color} now`;
    },
  },
  page_alert: {
    about: "shows you a sentence",
    spec: {
      description: "Show the person a sentence on their page. It does not wait until they have read it.",
      schema: object({ text: string("what to show") }),
      timeout: 10,
    },
    async run({ text }, { body }) {
      show(body, text);
      return "it is shown";
    },
  },
  ask_on_page: {
    about: "asks you a question, and waits",
    spec: {
      description: "Ask the person a question on their page and wait for the answer.",
      schema: object({ question: string("the question, one or two sentences") }),
      effect: "read",
      timeout: 300,
    },
    run({ question }, { body, signal, progress }) {
      show(body, question);
      const form = body.appendChild(document.createElement("form"));
      const answer = form.appendChild(document.createElement("input"));
      const send = form.appendChild(document.createElement("button"));
      answer.required = true;
      answer.ariaLabel = "Your answer";
      answer.placeholder = "Your answer";
      send.textContent = "Answer";
      answer.focus();
      answer.addEventListener("input", () => progress("they are typing"), { once: true });
      return new Promise((resolve, reject) => {
        form.addEventListener("submit", (event) => {
          event.preventDefault();
          form.remove();
          resolve(answer.value);
        });
        signal.addEventListener("abort", () => {
          form.remove();
          reject(signal.reason);
        });
      });
    },
  },
};

function show(body, text) {
  const shown = body.appendChild(document.createElement("p"));
  shown.className = "shown";
  shown.textContent = text;
  return shown;
}

// --- the connection

let socket = null;
let wait = 100;
const calls = new Map(); // those that run: id -> { card, over: AbortController, began }

function connect(token) {
  state("trying", "connecting");
  socket = new WebSocket(`ws://${location.host}/ws`);
  socket.onopen = () => say({ type: "hello", protocol: PROTOCOL, token, name: "browser page", instance });
  socket.onmessage = ({ data }) => handle(JSON.parse(data), token);
  socket.onclose = ({ code, reason }) => closed(code, reason, token);
}

function say(words) {
  if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(words));
}

function handle(words, token) {
  const row = rows.get(words.id);
  switch (words.type) {
    case "welcome":
      wait = 100;
      sessionStorage.setItem("token", token);
      state("on", "connected");
      for (const [name, { box }] of rows) if (box.checked) register(name);
      break;
    case "registered":
      row.note(`on · fails after ${words.timeout} s`);
      break;
    case "unregistered":
      row.note("");
      break;
    case "error":
      if (!row) return console.warn(words.message);
      row.box.checked = false;
      row.note(words.message, true);
      break;
    case "call":
      perform(words);
      break;
    case "cancelled":
      end(words.call, "cancelled", `The agent was stopped (${words.reason}); this is no longer needed.`);
      break;
    case "timeout":
      end(words.call, "timeout", `No answer within ${words.seconds} s.`);
      break;
    case "dropped":
      console.info(`an answer came too late: ${words.why}`);
  }
}

function closed(code, reason, token) {
  for (const id of [...calls.keys()]) end(id, "failed", "The connection was lost.");
  for (const row of rows.values()) row.note("");
  if (FINAL.has(code)) {
    sessionStorage.removeItem("token");
    state("off", "not connected");
    trouble(reason ? reason[0].toUpperCase() + reason.slice(1) + "." : "The server refused us.");
    return;
  }
  state("trying", "reconnecting");
  setTimeout(() => connect(token), wait);
  wait = Math.min(2 * wait, 5000);
}

function state(name, text) {
  $("state").dataset.state = name;
  $("state").textContent = text;
  $("door").hidden = name !== "off";
  if (name === "on") trouble("");
}

function trouble(text) {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
}

// --- calls

async function perform({ call: id, tool, args, timeout }) {
  const over = new AbortController();
  const card = draw(tool, timeout);
  calls.set(id, { card, over, began: performance.now() });
  try {
    const output = await TOOLS[tool].run(args, {
      body: card.querySelector(".body"),
      signal: over.signal,
      progress: (text) => calls.has(id) && say({ type: "progress", call: id, text }),
    });
    if (!calls.has(id)) return;
    say({ type: "result", call: id, output });
    end(id, "done", output);
  } catch (error) {
    if (!calls.has(id)) return;
    say({ type: "error", call: id, message: error.message });
    end(id, "failed", error.message);
  }
}

function end(id, state, text) {
  const call = calls.get(id);
  if (!call) return;
  calls.delete(id);
  mark(call.card, state, text);
  const took = performance.now() - call.began;
  call.card.querySelector("time").append(took < 1000 ? ` · ${Math.round(took)} ms` : ` · ${(took / 1000).toFixed(1)} s`);
  call.over.abort(new Error(text));
  count();
}

function draw(tool, timeout) {
  const card = $("call-card").content.firstElementChild.cloneNode(true);
  card.querySelector(".name").textContent = tool;
  card.querySelector("time").textContent = new Date().toLocaleTimeString();
  card.querySelector(".left span").style.animationDuration = `${timeout}s`;
  mark(card, "running", "");
  $("calls").prepend(card);
  while ($("calls").childElementCount > KEPT) $("calls").lastElementChild.remove();
  $("none").hidden = true;
  queueMicrotask(count);
  return card;
}

const BADGES = { running: "running", done: "answered", failed: "failed", cancelled: "cancelled", timeout: "timed out" };

function mark(card, state, text) {
  card.dataset.state = state;
  card.querySelector(".badge").textContent = BADGES[state];
  card.querySelector(".outcome").textContent = text;
}

function count() {
  $("count").textContent = calls.size ? `· ${calls.size} running` : "";
}

// --- tools on and off

const rows = new Map();

function register(name) {
  say({ type: "register", id: name, tool: { name, ...TOOLS[name].spec } });
}

for (const [name, { about }] of Object.entries(TOOLS)) {
  const row = $("tool-row").content.firstElementChild.cloneNode(true);
  const box = row.querySelector("input");
  const note = row.querySelector(".note");
  row.dataset.tool = name;
  row.querySelector("code").textContent = name;
  row.querySelector(".about .quiet").textContent = about;
  box.checked = true;
  box.addEventListener("change", () => {
    if (socket?.readyState !== WebSocket.OPEN) return;
    if (box.checked) register(name);
    else say({ type: "unregister", id: name, name });
  });
  rows.set(name, {
    box,
    note(text, bad = false) {
      note.textContent = text;
      note.classList.toggle("trouble", bad);
    },
  });
  $("tools").append(row);
}

// --- the token: from the address, which does not keep it; from before; or pasted

$("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = $("token").value.trim();
  $("token").value = "";
  connect(token);
});
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) history.replaceState(null, "", location.pathname);
const token = given ?? sessionStorage.getItem("token");
if (token) connect(token);
