"""The real programs: where each is installed, how it is led to the scripted model, and its settings for that."""

import json
import shutil
from pathlib import Path

from msgspec import Struct

from alipes.features.agents.presets import PRESETS
from tests.world.environment import OPTIONAL, SERVICES, program_path

FOLDER = SERVICES / "agents" / "node_modules"
"""Where `tools/agent-programs` installs them, with the Node that they need."""
KEY = "SCRIPTED_MODEL_KEY"
SECRET = "sk-of-the-scripted-model-1234567890"


class RealProgram(Struct, frozen=True):
    name: str
    package: str
    api: str
    """The wire format in which it speaks with its model."""
    env: dict[str, str]
    """Its variables; `{url}` is the scripted model."""
    file: str = ""
    """Its settings below its folder."""
    settings: str = ""
    """What is in them; `{url}` as above."""

    def configure(self, home: Path, url: str) -> str:
        """Write its settings; returns its table of config.toml."""
        if self.file:
            path = home / "agents" / self.name / "home" / self.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.settings.replace("{url}", url))
        env = ", ".join(f'{key} = "{text.replace("{url}", url)}"' for key, text in self.env.items())
        return f"[agents.{self.name}]\nenv = {{ {env} }}\n"

    def find_missing(self) -> str:
        """Why it cannot be run; empty if it can."""
        command = PRESETS[self.name].command
        if shutil.which(command, path=str(FOLDER / ".bin")):
            return ""
        return f"{command} is not installed in {FOLDER.parent} (tools/agent-programs)"

    @property
    def version(self) -> str:
        return str(json.loads((FOLDER / self.package / "package.json").read_text())["version"])


def search_path() -> str:
    """Their Node before that of this machine, which may be too old for them."""
    return f"{FOLDER / '.bin'}:{program_path(*OPTIONAL)}"


_CODEX = f"""\
model = "scripted"
model_provider = "scripted"
sandbox_mode = "danger-full-access"
approval_policy = "untrusted"
check_for_update_on_startup = false
[model_providers.scripted]
name = "Scripted"
base_url = "{{url}}"
wire_api = "responses"
env_key = "{KEY}"
"""
_OPENCODE = {
    "model": "scripted/scripted",
    "small_model": "scripted/scripted",
    "permission": {"edit": "ask", "bash": "ask"},
    "provider": {
        "scripted": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Scripted",
            "options": {"baseURL": "{url}", "apiKey": f"{{env:{KEY}}}"},
            "models": {"scripted": {"name": "Scripted"}},
        }
    },
}
_PRIVACY = {"usageStatisticsEnabled": False}
_GEMINI = {
    "privacy": _PRIVACY,
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "model": {"name": "gemini-2.5-flash"},
}
_QWEN = {
    "privacy": _PRIVACY,
    "ui": {"enableFollowupSuggestions": False},
    "security": {"auth": {"selectedType": "openai"}},
}
_KEY = f"${{{KEY}}}"
PROGRAMS = (
    RealProgram(
        "claude",
        "@agentclientprotocol/claude-agent-acp",
        "anthropic",
        {"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": _KEY},
    ),
    RealProgram(
        "codex",
        "@zed-industries/codex-acp",
        "openai-responses",
        {KEY: _KEY, "CODEX_MODEL_URL": "{url}"},  # the address makes its host one of its own
        "config.toml",
        _CODEX,
    ),
    RealProgram(
        "gemini",
        "@google/gemini-cli",
        "gemini",
        {"GOOGLE_GEMINI_BASE_URL": "{url}", "GEMINI_API_KEY": _KEY},
        ".gemini/settings.json",
        json.dumps(_GEMINI),
    ),
    RealProgram(
        "opencode",
        "opencode-ai",
        "openai-chat",
        {KEY: _KEY, "OPENCODE_MODEL_URL": "{url}"},
        "config/opencode/opencode.json",
        json.dumps(_OPENCODE),
    ),
    RealProgram(
        "qwen",
        "@qwen-code/qwen-code",
        "openai-chat",
        {"OPENAI_BASE_URL": "{url}", "OPENAI_API_KEY": _KEY, "OPENAI_MODEL": "scripted"},
        "settings.json",
        json.dumps(_QWEN),
    ),
)
