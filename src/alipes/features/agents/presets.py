"""Known programs that speak the Agent Client Protocol: data only, looked up on `CHECKED`."""

from msgspec import Struct

CHECKED = "2026-11-19"
"""When commands, variables and hosts were last compared with what the vendors publish."""


ASKS = '{"permission": {"edit": "ask", "bash": "ask"}}'
NO_STATISTICS = '{"privacy": {"usageStatisticsEnabled": false}}'
NO_SUGGESTIONS = '{"privacy": {"usageStatisticsEnabled": false}, "ui": {"enableFollowupSuggestions": false}}'
"""Nor a question to the model after each turn about what might be said next, which nobody would see."""


class Preset(Struct, frozen=True, kw_only=True):
    title: str
    package: str
    """Where it comes from, with the version that was tried or looked up."""
    install: str
    """The command that installs it."""
    command: str
    args: tuple[str, ...] = ()
    home: tuple[tuple[str, str], ...] = ()
    """Variables that name its own folder, and where each points below it."""
    env: tuple[tuple[str, str], ...] = ()
    """Other variables: no updates and no telemetry by itself, no sandbox inside ours."""
    files: tuple[tuple[str, str], ...] = ()
    """Settings below its folder that it cannot change, and what is in them at first."""
    folders: tuple[str, ...] = ()
    """Folders with hooks, plug-ins and commands that it cannot change."""
    hosts: tuple[str, ...] = ()
    """Hosts that it cannot work without."""
    reads_files: bool = True
    """It reads files of the project through us, as it writes them."""
    mode: str = ""
    """The mode that its sessions begin with, if in its own it decides by itself what to ask about."""
    login: tuple[str, ...] = ()
    """Its own login, if it does not offer one by the protocol."""
    key_methods: tuple[tuple[str, str], ...] = ()
    """By variable with a key, the login method of the protocol that reads it."""


PRESETS: dict[str, Preset] = {
    "claude": Preset(
        title="Claude Code",
        package="npm @agentclientprotocol/claude-agent-acp 0.100.0",
        install="npm install -g @agentclientprotocol/claude-agent-acp",
        command="claude-agent-acp",
        home=(("CLAUDE_CONFIG_DIR", ""),),
        env=(
            *(("DISABLE_AUTOUPDATER", "1"), ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"), ("IS_SANDBOX", "1")),
            ("CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION", "false"),
        ),
        files=(("settings.json", "{}"), ("CLAUDE.md", "")),
        folders=("plugins", "agents", "commands", "skills", "hooks"),
        hosts=("api.anthropic.com", "claude.ai", "*.claude.ai", "claude.com", "*.claude.com", "console.anthropic.com"),
    ),
    "codex": Preset(
        title="Codex",
        package="npm @zed-industries/codex-acp 0.16.0",
        install="npm install -g @zed-industries/codex-acp",
        command="codex-acp",
        home=(("CODEX_HOME", ""),),
        files=(
            (
                "config.toml",
                '# alipes runs this in its own sandbox and asks you itself.\nsandbox_mode = "danger-full-access"\n'
                'approval_policy = "untrusted"\ncheck_for_update_on_startup = false\n',
            ),
            ("AGENTS.md", ""),
            ("hooks.json", "{}"),
        ),
        folders=("prompts", "rules", "skills"),
        hosts=("api.openai.com", "chatgpt.com", "*.chatgpt.com", "auth.openai.com"),
        login=("codex", "login", "--device-auth"),
        key_methods=(("CODEX_API_KEY", "codex-api-key"), ("OPENAI_API_KEY", "openai-api-key")),
    ),
    "gemini": Preset(
        title="Gemini CLI",
        package="npm @google/gemini-cli 0.61.0",
        install="npm install -g @google/gemini-cli",
        command="gemini",
        args=("--acp",),
        home=(("GEMINI_CLI_HOME", ""),),
        # it starts MCP servers in trusted folders only; what a project starts runs in our sandbox
        env=(("NO_BROWSER", "true"), ("GEMINI_CLI_TRUST_WORKSPACE", "true")),
        files=((".gemini/settings.json", NO_STATISTICS), (".gemini/GEMINI.md", "")),
        folders=(".gemini/extensions", ".gemini/commands", ".gemini/skills", ".gemini/hooks"),
        hosts=(
            *("generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com"),
            *("accounts.google.com", "www.googleapis.com"),
        ),
        reads_files=False,  # it takes a missing file for a failure of ours
        login=("gemini",),
        key_methods=(("GEMINI_API_KEY", "gemini-api-key"),),
    ),
    "opencode": Preset(
        title="OpenCode",
        package="npm opencode-ai 1.18.33",
        install="npm install -g opencode-ai",
        command="opencode",
        args=("acp",),
        home=(
            *(("XDG_CONFIG_HOME", "config"), ("XDG_DATA_HOME", "data"), ("XDG_CACHE_HOME", "cache")),
            ("XDG_STATE_HOME", "state"),
        ),
        env=(("OPENCODE_DISABLE_AUTOUPDATE", "1"), ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1")),
        files=(
            *(("config/opencode/opencode.json", ASKS), ("config/opencode/AGENTS.md", "")),
            ("config/opencode/.gitignore", ""),  # which it would write
        ),
        folders=("config/opencode",),  # it installs a package there at every start, unless it cannot write
        hosts=("opencode.ai", "*.opencode.ai", "models.dev"),
        login=("opencode", "auth", "login"),
    ),
    "qwen": Preset(
        title="Qwen Code",
        package="npm @qwen-code/qwen-code 0.24.4",
        install="npm install -g @qwen-code/qwen-code",
        command="qwen",
        args=("--acp",),
        home=(("QWEN_HOME", ""),),
        files=(("settings.json", NO_SUGGESTIONS), ("QWEN.md", "")),
        folders=("extensions", "commands", "skills", "agents", "hooks"),
        mode="default",
        hosts=(
            "chat.qwen.ai",
            "portal.qwen.ai",
            "dashscope.aliyuncs.com",
            "dashscope-intl.aliyuncs.com",
            "coding.dashscope.aliyuncs.com",
            "coding-intl.dashscope.aliyuncs.com",
        ),
        login=("qwen",),
        key_methods=(("OPENAI_API_KEY", "openai"),),
    ),
    "copilot": Preset(
        title="GitHub Copilot CLI",
        package="npm @github/copilot 1.0.102 (looked up, not tried)",
        install="npm install -g @github/copilot",
        command="copilot",
        args=("--acp",),
        home=(("COPILOT_HOME", ""),),
        env=(("COPILOT_AUTO_UPDATE", "false"),),
        files=(("config.json", "{}"), ("mcp-config.json", "{}")),
        folders=("agents", "hooks", "skills", "plugins"),
        hosts=("api.github.com", "github.com", "*.githubcopilot.com"),
        login=("copilot", "login"),
    ),
    "goose": Preset(
        title="goose",
        package="https://block.github.io/goose (looked up, not tried)",
        install="see https://block.github.io/goose",
        command="goose",
        args=("acp",),
        home=(("GOOSE_PATH_ROOT", ""),),
        files=(("config/config.yaml", ""),),
        login=("goose", "configure"),
    ),
    "cursor": Preset(
        title="Cursor CLI",
        package="https://cursor.com/cli (looked up, not tried)",
        install="see https://cursor.com/cli",
        command="cursor-agent",
        args=("acp",),
        home=(("CURSOR_CONFIG_DIR", ""),),
        files=(("cli-config.json", "{}"), ("hooks.json", "{}"), ("mcp.json", "{}")),
        hosts=("cursor.com", "*.cursor.com", "*.cursor.sh"),
        login=("cursor-agent", "login"),
    ),
    "kimi": Preset(
        title="Kimi Code CLI",
        package="npm @moonshot-ai/kimi-code 2.1.0 (looked up, not tried)",
        install="npm install -g @moonshot-ai/kimi-code",
        command="kimi",
        args=("acp",),
        home=(("KIMI_SHARE_DIR", ""), ("KIMI_CODE_HOME", "")),
        files=(("config.toml", ""),),
        hosts=("api.kimi.com", "*.kimi.com", "api.moonshot.ai", "api.moonshot.cn"),
        login=("kimi", "login"),
    ),
}

MARKERS = (
    *("CLAUDECODE", "CLAUDE_CODE_", "CLAUDE_AGENT_", "CLAUDE_CONFIG_DIR", "CLAUDE_", "ANTHROPIC_", "CODEX_", "OPENAI_"),
    *("GEMINI_", "GOOGLE_", "OPENCODE", "QWEN_", "COPILOT_", "GOOSE_", "CURSOR_", "KIMI_", "AGENT_SESSION", "AI_AGENT"),
    *("TERM_PROGRAM", "VSCODE_", "ZED_"),
)
"""Starts of variables that say that a program runs inside another agent, or that lead it to an account: removed."""
