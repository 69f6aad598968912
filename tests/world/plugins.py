"""Plugin modules made from source text."""

import sys
import textwrap
from types import ModuleType


def make_plugin(name: str, code: str) -> ModuleType:
    """A module with this code, importable by name like an installed one."""
    module = ModuleType(name)
    sys.modules[name] = module
    exec(compile(textwrap.dedent(code), f"<plugin {name}>", "exec"), vars(module))
    return module
