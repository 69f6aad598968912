"""Small plugins in the original's style, written into real folders; and what became of them while they ran."""

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from types import ModuleType

Plant = Callable[..., Path]


def write_plugin(folder: Path, source: str, *, about: str = "", **files: str) -> Path:
    """A plugin called like its folder; `files` by name, with `_` for the dot before the ending."""
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text(f"name: {folder.name}\nversion: '1.0'\n{dedent(about)}")
    (folder / "__init__.py").write_text(dedent(source))
    for name, text in files.items():
        stem, _, ending = name.rpartition("_")
        (folder / f"{stem}.{ending}").write_text(dedent(text))
    return folder


def plugin_module(name: str) -> ModuleType:
    """The plugin's code as it is loaded."""
    return sys.modules[f"hermes_plugins.{name}"]
