// The topics of the settings: their sections, and the settings that most people want, with names.

/** @typedef {{id: string, title: string, icon: string, lead: string, main: Record<string, string>, sections: Record<string, string>}} Topic */

/** @type {Topic[]} `main`: names by key. `sections`: titles of those that are folded below; `general` are settings without a section. */
export const TOPICS = [
  { id: "models", title: "Models", icon: "chat", lead: "Which model answers, what it may spend, and which ones do the work beside it.",
    main: { model: "Model", fallback: "If it does not answer", effort: "Thinking effort", "spend.per_turn": "Most a turn may cost", "spend.per_session": "Most a conversation may cost",
      "spend.per_day": "Most a day may cost", "auxiliary.titles.model": "Model for titles", "auxiliary.compaction.model": "Model for summaries", "images.model": "Model that draws" },
    sections: { providers: "Providers", models: "Facts about models", auxiliary: "Work beside the conversation", embedded: "Model on this computer", images: "Pictures", compaction: "Long conversations", delegation: "Subagents", agents: "Other agents", spend: "Cost" } },
  { id: "safety", title: "Safety", icon: "lock", lead: "What the agent may do without asking, and what it can reach.",
    main: { "approvals.mode": "What needs an approval", "approvals.judge": "A model looks at acts", "sandbox.backend": "Sandbox", "sandbox.write": "Folders it may change", "sandbox.read": "Folders it may read",
      "sandbox.network": "Network of commands", "checkpoints.enabled": "Checkpoints of files", "egress.default": "Hosts that are not listed", "egress.allow": "Hosts it may connect to" },
    sections: { approvals: "Approvals", sandbox: "Sandbox", egress: "Network", checkpoints: "Checkpoints", fetch: "Private addresses", code: "Python code", clarify: "Questions", tools: "Tools" } },
  { id: "memory", title: "Memory and skills", icon: "note", lead: "What the agent keeps of conversations, and what it learns.",
    main: { "memory.enabled": "Memory", "memory.ask": "Ask before a note is kept", "learning.mode": "Learning from conversations", "skills.enabled": "Skills", "skills.project": "Skills of the folder" },
    sections: { memory: "Memory", learning: "Learning", skills: "Skills" } },
  { id: "messengers", title: "Messengers", icon: "people", lead: "Where people write to the agent, and who may.",
    main: { "gateway.pairing": "Access by a pairing code", "heartbeat.every": "Look by itself every", "heartbeat.to": "Tell it to" },
    sections: { telegram: "Telegram", discord: "Discord", slack: "Slack", matrix: "Matrix", email: "Email", irc: "IRC", gateway: "All messengers", heartbeat: "Heartbeat", schedules: "Schedules", notify: "Notices", voice: "Voice", mailbox: "Mailbox", calendar: "Calendar", tasks: "Tasks" } },
  { id: "web", title: "Web and documents", icon: "search", lead: "How it searches, reads pages and documents, and uses a browser.",
    main: { "web.search": "Search with", "web.extract": "Read pages with", "browser.enabled": "Browser", "documents.max_mb": "Largest document (MB)" },
    sections: { web: "Search and pages", browser: "Browser", documents: "Documents" } },
  { id: "extensions", title: "Extensions", icon: "plug", lead: "Plugins, MCP servers and packages. Their own screens add and remove them.",
    main: { "plugins.safe": "Start without plugins", "install.auto": "Install missing packages", "update.check": "Look for new versions", "update.channel": "Versions" },
    sections: { plugins: "Plugins", mcp: "MCP servers", install: "Packages", update: "Updates" } },
  { id: "terminal", title: "Terminal", icon: "tool", lead: "How the terminal looks, and its keys.",
    main: { "terminal.theme": "Colours", "terminal.editing": "Keys of the input", "terminal.thinking": "Show thinking", "terminal.notify": "Notify", "terminal.busy": "A message while a task runs" },
    sections: { terminal: "Terminal", keys: "Keys" } },
  { id: "server", title: "Server", icon: "server", lead: "Addresses, limits, storage and the log of `alipes serve`.",
    main: { timezone: "Time zone", workdir: "Folder of new conversations", "serve.host": "Listen on", "serve.port": "Port", "page.address": "Address of this page", log_level: "Log" },
    sections: { serve: "Server", api: "API", page: "Page", webhooks: "Webhooks", files: "Stored files", cluster: "Cluster", general: "General" } },
];

/** @param {string} key */
export const sectionOf = (key) => (key.includes(".") ? key.slice(0, key.indexOf(".")) : "general");

/** The topic of a section; unknown ones, such as those of plugins, belong to the extensions. @param {string} section @returns {Topic} */
export function topicOf(section) {
  const extensions = /** @type {Topic} */ (TOPICS.find((each) => each.id === "extensions"));
  return TOPICS.find((each) => Object.hasOwn(each.sections, section)) ?? extensions;
}

/** The name of a setting for people. @param {string} key */
export function nameOf(key) {
  for (const { main } of TOPICS) if (Object.hasOwn(main, key)) return main[key] ?? key;
  const words = key.slice(sectionOf(key) === "general" ? 0 : key.indexOf(".") + 1).replace(/[._]/g, " ").replace(/ env$/, " (name of its secret)");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** The title of a section. @param {string} section */
export const titleOf = (section) => topicOf(section).sections[section] ?? section;
