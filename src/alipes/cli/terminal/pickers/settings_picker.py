"""The settings as a list, each with its value and origin. Enter edits one, as `alipes config set` does."""

import asyncio
from collections.abc import Sequence

from alipes.cli.terminal.pickers.picker import Picker, PickerAction, PickerItem
from alipes.cli.terminal.terminal import TerminalApp
from alipes.config.display import mask, to_toml, toml_path
from alipes.config.editor import change, set_value
from alipes.config.loader import build_settings
from alipes.config.reader import KeyPath, RawConfig, read_config
from alipes.config.values import explain_value, format_origin, list_keys
from alipes.console.styles import detect_features, wrap_text
from alipes.kernel.errors import ConfigError

THEMES = {
    "auto": "ask the terminal for its background",
    "dark": "colours for a dark background",
    "light": "colours for a light background",
}


async def edit_settings(terminal: TerminalApp) -> list[str]:
    """Let the user look at the settings and change some; the names of those that were changed."""
    editor = _Editor(terminal)
    actions = {"enter": PickerAction("enter edit", editor.edit), "c-d": PickerAction("ctrl-d default", editor.reset)}
    await terminal.pick(Picker("Settings", editor.list_items(), preview=editor.preview, actions=actions))
    return editor.changed


async def choose_theme(terminal: TerminalApp) -> str | None:
    """Let the user choose a theme; None if none was chosen."""
    current = str(read_config().effective("terminal", "theme").value)
    items = [PickerItem(name, name, text, mark="*" if name == current else "") for name, text in THEMES.items()]
    chosen = await terminal.pick(Picker("Theme", items, selected=current))
    return chosen.value if chosen else None


async def use_theme(terminal: TerminalApp, name: str) -> str:
    """Use the theme now and from now on; what was done, as a sentence. Raises `ConfigError`."""
    lines, _ = await asyncio.to_thread(set_value, "terminal.theme", name)
    reading = read_config()
    chosen = build_settings(reading).terminal.theme
    if chosen != name:
        return "\n".join(lines)  # a variable overrides the file
    terminal.use_features(detect_features(reading.variables, chosen, utf8=not terminal.features.ascii_only))
    return "NO_COLOR is set, so there are no colours." if terminal.theme == "none" else f"Theme: {name}."


class _Editor:
    """What the list does with a setting."""

    def __init__(self, terminal: TerminalApp) -> None:
        self._terminal = terminal
        self._reading = read_config()
        self._ways = {toml_path(way): way for way in list_keys(self._reading)}
        self.changed: list[str] = []

    def list_items(self) -> list[PickerItem]:
        return [_item(self._reading, way) for way in self._ways.values()]

    async def preview(self, item: PickerItem) -> Sequence[str]:
        """Where its value comes from, what it means, and what is allowed."""
        _, *lines = explain_value(self._reading, self._ways[item.value])
        room = max(20, self._terminal.columns - 6)
        return [row for line in lines for row in wrap_text(line.strip(), room)]

    async def edit(self, picker: Picker, item: PickerItem) -> None:
        value = self._reading.effective(*self._ways[item.value]).value
        before = "" if value is None else value if isinstance(value, str) else to_toml(value)
        text = await picker.ask(f"{item.value} =", before if mask(before) == before else "")
        if text is None or text == before:
            return
        try:
            await asyncio.to_thread(set_value, item.value, text)
        except ConfigError as error:
            picker.note = str(error)
        else:
            self._renew(picker, item)

    async def reset(self, picker: Picker, item: PickerItem) -> None:
        """Remove it from config.toml."""
        way = self._ways[item.value]
        if way not in self._reading.values:
            picker.note = f"{item.value} is not set in {self._reading.paths.config.name}"
            return
        try:
            await asyncio.to_thread(change, {way: None})
        except ConfigError as error:
            picker.note = str(error)
        else:
            self._renew(picker, item)

    def _renew(self, picker: Picker, item: PickerItem) -> None:
        self._reading = read_config()
        self.changed += [item.value] if item.value not in self.changed else []
        picker.replace(item, _item(self._reading, self._ways[item.value]))


def _item(reading: RawConfig, way: KeyPath) -> PickerItem:
    found, name = reading.effective(*way), toml_path(way)
    value = "not set" if found.value is None else to_toml(found.value)
    detail = f"{value} · {format_origin(reading, way, found)}"
    return PickerItem(name, name, detail, mark="*" if way in reading.values else "")
