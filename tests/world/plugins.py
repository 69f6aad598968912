"""Plugins of a test's own: modules made of text, as a file would be."""

import sys
import textwrap
from types import ModuleType


def a_plugin(name: str, code: str) -> ModuleType:
    """The module that `code` is; importable under its name, as an installed one would be."""
    module = ModuleType(name)
    sys.modules[name] = module
    exec(compile(textwrap.dedent(code), f"<plugin {name}>", "exec"), vars(module))
    return module
