"""The configuration of OpenClaw: `openclaw.json`, in JSON or JSON5, and what it says about agents."""

import re
from importlib import import_module
from typing import Any

from alipes.config.extras import explain_missing
from alipes.features.importer.formats import SourceError, plain_value, read_json
from alipes.features.importer.json_lines import Row, get_row, get_rows, get_text
from alipes.features.importer.source_home import SourceHome
from alipes.features.importer.zstd import EXTRA

FILES = ("openclaw.json", "clawdbot.json", "moltbot.json")
_OWN_FOLDER = re.compile(r"(?:^|/)\.(?:openclaw|clawdbot|moltbot)[^/]*/(.+)$")


class OpenClawConfig:
    """Read once; a home without it has only defaults."""

    def __init__(self, home: SourceHome) -> None:
        self._home = home
        self.file = next((name for name in FILES if home.has(name)), FILES[0])
        self.problem = ""
        self.data: Row = {}
        try:
            self.data = read_json5(home.read_text(self.file) or "{}", self.file)
        except SourceError as error:
            self.problem = str(error)

    def row(self, *names: str) -> Row:
        return get_row(self.data, *names)

    def agents(self) -> dict[str, Row]:
        """Agents by id: those that are configured, and those with a folder."""
        listed = {get_text(each, "id"): each for each in get_rows(self.row("agents"), "list")}
        entries = {name: each for name, each in self.row("agents", "entries").items() if isinstance(each, dict)}
        found = {name: each for name, each in (listed | entries).items() if name}
        return found | {name: {} for name in self._home.list_names("agents") if name not in found and name[:1] != "."}

    def main_agent(self) -> str:
        """The agent that answers by default."""
        agents = self.agents()
        chosen = next((name for name, each in agents.items() if each.get("default") is True), "")
        return chosen or ("main" if "main" in agents or not agents else next(iter(agents)))

    def workspace(self, agent: str) -> str:
        """The folder of an agent's files within the home; empty if it is outside."""
        is_main = agent == self.main_agent()
        default = "workspace" if is_main else f"workspace-{agent}"
        named = get_text(self.agents().get(agent, {}), "workspace")
        named = named or (get_text(self.row("agents", "defaults"), "workspace") if is_main else "")
        if not named:
            return default
        named = named.replace("\\", "/").rstrip("/")
        if inner := _OWN_FOLDER.search(named):
            return inner[1]
        prefix = f"{self._home.path.as_posix()}/"
        return named.removeprefix(prefix) if named.startswith(prefix) else ""


def read_json5(text: str, name: str) -> Row:
    """Raises `SourceError`."""
    try:
        found = read_json(text, name)
    except SourceError:
        found = _read_with_comments(text, name)
    if not isinstance(found, dict):
        raise SourceError(f"{name} has no settings")
    return found


def _read_with_comments(text: str, name: str) -> Any:
    try:
        json5: Any = import_module("json5")
    except ModuleNotFoundError as missing:
        raise SourceError(f"{name}, with the settings, was left out. {explain_missing(EXTRA)}") from missing
    try:
        return plain_value(json5.loads(text))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{name} is not valid JSON5, so the settings were left out") from error
