"""Gives an app the plugins of a test: modules, or folders. What a plugin is, the loader says."""

import inspect
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from alipes.app import App
from alipes.hooks.owners import Owner
from alipes.hooks.relay import parameters
from alipes.hooks.toolmaking import marked, tool_of

Plugin: TypeAlias = ModuleType | Path | str


@asynccontextmanager
async def open_plugins(app: App, plugins: Iterable[Plugin]) -> AsyncIterator[None]:
    for plugin in plugins:
        owner = Owner(plugin.__name__)
        for name, thing in vars(plugin).items():
            if inspect.iscoroutinefunction(thing) and parameters(name):
                app.hooks.add(owner, thing)
            if marked(thing):
                tool = tool_of(thing)
                app.tools[tool.spec.name] = tool
    yield
