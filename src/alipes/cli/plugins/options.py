"""The words of `alipes plugins`, as frozen options. Wrong words end the program with status 2."""

from msgspec import Struct

from alipes.cli import manual
from alipes.cli.arguments import Words
from alipes.config.near import did_you_mean

ACTIONS = ("list", "enable", "disable", "install", "update", "remove", "doctor", "new")
_OF = {
    "ref": ("install",),
    "folder": ("install",),
    "entry": ("install",),
    "no_enable": ("install",),
    "yes": ("install", "update", "remove"),
    "rollback": ("update",),
    "hermes": ("new",),
    "json": ("list", "doctor"),
}
"""Which actions each option belongs to."""


class PluginsOptions(Struct, frozen=True):
    action: str
    name: str = ""
    """A plugin's, or for `install` the SOURCE."""
    ref: str = ""
    folder: str = ""
    entry: str = ""
    no_enable: bool = False
    yes: bool = False
    rollback: bool = False
    hermes: bool = False
    json: bool = False


def parse(argv: list[str]) -> PluginsOptions:
    words = Words("alipes plugins", manual.PLUGINS)
    for text in ("--ref", "--folder", "--entry"):
        words.add_argument(text, default="")
    for flag in ("--no-enable", "--rollback", "--hermes", "--json"):
        words.add_argument(flag, action="store_true")
    words.add_argument("-y", "--yes", action="store_true")
    given, named = words.split(argv)
    action, *name = named or ["list"]
    if action not in ACTIONS:
        meant = did_you_mean(action, ACTIONS)
        words.error(f"no such action: {action} (there are {', '.join(ACTIONS)}).{meant}")
    what = "SOURCE" if action == "install" else "NAME"
    if action == "list" and name:
        words.error("`list` takes no name")
    if action not in ("list", "doctor") and not name:
        words.error(f"`{action}` needs a {what}")
    if len(name) > 1:
        words.error(f"`{action}` takes one {what}, got {len(name)}")
    chosen = {option: getattr(given, option) for option in _OF}
    for option, actions in _OF.items():
        if chosen[option] and action not in actions:
            words.error(f"--{option.replace('_', '-')} is for `{'` and `'.join(actions)}`, not `{action}`")
    return PluginsOptions(action, "".join(name), **chosen)
