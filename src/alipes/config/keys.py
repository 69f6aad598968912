"""The keys of the terminal: actions with their default keys, and the names of keys.

A key is written as in `c-o` (Ctrl-O), `a-enter` (Alt-Enter), `s-tab` (Shift-Tab), `f2` or `?`; keys pressed one after
the other are separated by blanks, as in `c-x c-e`.
"""

import re
from collections.abc import Iterator
from typing import Annotated, get_args

from msgspec import Struct, structs

from alipes.config.urls import InvalidValue
from alipes.config.value_types import ValueType
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Json

_MODIFIERS = {
    **dict.fromkeys(("c", "ctrl", "control"), "c"),
    **dict.fromkeys(("a", "alt", "m", "meta", "option"), "a"),
    **dict.fromkeys(("s", "shift"), "s"),
}
_OTHER_NAMES = {
    "esc": "escape",
    "return": "enter",
    "del": "delete",
    "ins": "insert",
    "pgup": "pageup",
    "pgdn": "pagedown",
    "bs": "backspace",
}
_SAME_KEY = {"c-i": "tab", "c-m": "enter", "c-[": "escape", "c-h": "backspace"}
"""Combinations that terminals do not distinguish from a key with a name."""
_CURSOR = ("up", "down", "left", "right", "home", "end")
_NAMED = (
    *("enter", "tab", "escape", "backspace", "delete", "insert", "pageup", "pagedown", "space"),
    *_CURSOR,
    *(f"f{number}" for number in range(1, 13)),
)
_WITH = {
    "c": {*"abcdefghijklmnopqrstuvwxyz@\\]^_[", "space", "enter", "delete", "insert", "pageup", "pagedown", *_CURSOR},
    "s": {"tab", "enter", "delete", "insert", *_CURSOR},
    "cs": {"left", "right", "home", "end"},
}
"""What terminals can send with Ctrl, with Shift, and with both. Alt works with everything."""
_EXAMPLE = 'as in "c-o", "a-enter", "s-tab", "f2" or "c-x c-e"'
_MAX_KEYS_IN_SEQUENCE = 3
REWIND_KEY = "escape escape"
"""The only sequence that starts with Escape alone."""


def parse_key(text: str) -> str:
    """The usual form of a key or sequence: `Ctrl-X Ctrl-E` is `c-x c-e`. Raises InvalidValue."""
    strokes = text.split()
    if not 1 <= len(strokes) <= _MAX_KEYS_IN_SEQUENCE:
        raise InvalidValue(f"must name a key, {_EXAMPLE}")
    sequence = " ".join(_parse_stroke(stroke) for stroke in strokes)
    if sequence.startswith("escape ") and sequence != REWIND_KEY:
        raise InvalidValue(f'contains "{text}": a sequence cannot start with Escape; write Alt as a-')
    if len(strokes) > 1 and is_character(sequence.split()[0]):
        raise InvalidValue(f'contains "{text}": a sequence cannot start with a character that you type')
    return sequence


def _parse_stroke(text: str) -> str:
    rest, held = text, set()
    while True:
        head, *tail = re.split("[-+]", rest, maxsplit=1)
        if not tail or not tail[0] or head.lower() not in _MODIFIERS:
            break
        held.add(_MODIFIERS[head.lower()])
        rest = tail[0]
    name = rest if len(rest) == 1 else _OTHER_NAMES.get(rest.lower(), rest.lower())
    if name not in _NAMED and not (len(name) == 1 and name.isprintable()):
        raise InvalidValue(f'contains the unknown key "{text}": name keys {_EXAMPLE}.{did_you_mean(name, _NAMED)}')
    others = "".join(each for each in "cs" if each in held)
    name = name.lower() if "c" in held else name
    if others and name not in _WITH[others]:
        raise InvalidValue(f'contains "{text}", which terminals cannot send')
    key = "".join(f"{each}-" for each in others) + name
    return ("a-" if "a" in held else "") + _SAME_KEY.get(key, key)


def is_character(key: str) -> bool:
    """True if the key types a character."""
    return len(key) == 1 or key == "space"


def _check_keys(value: object) -> list[Json]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InvalidValue(f"must be a key or a list of keys, {_EXAMPLE}; [] for no key")
    return list(dict.fromkeys(parse_key(text) for text in texts))


KEY_LIST = ValueType(
    "key or list of keys", _check_keys, lambda text: [one for one in text.split(",") if one.strip()], "list"
)
_Keys = tuple[str, ...]


class KeysConfig(Struct, frozen=True):
    """The keys of each action. The descriptions are also the text of `/keys` and of `?`."""

    send: Annotated[_Keys, KEY_LIST, "Send the message. In a menu: take the chosen row."] = ("enter",)
    queue: Annotated[_Keys, KEY_LIST, "Queue the message. It is sent after the running turn."] = ("a-q",)
    steer: Annotated[_Keys, KEY_LIST, "Steer with the message. It reaches the running turn at its next step."] = (
        "a-s",
    )
    background: Annotated[
        _Keys,
        KEY_LIST,
        "Move to the background. The running command continues there; without a running turn the cursor moves back.",
    ] = ("c-b",)
    newline: Annotated[_Keys, KEY_LIST, "Start a new line. A backslash before Enter does it in every terminal."] = (
        "s-enter",
        "a-enter",
        "c-j",
    )
    stop: Annotated[
        _Keys,
        KEY_LIST,
        "Stop the running turn. The input is kept. A menu is closed first; when idle, the input is cleared.",
    ] = ("escape",)
    interrupt: Annotated[_Keys, KEY_LIST, "Stop, or clear the input. Twice: quit."] = ("c-c",)
    quit: Annotated[_Keys, KEY_LIST, "Quit. With text in the input: delete the next character."] = ("c-d",)
    paste_picture: Annotated[_Keys, KEY_LIST, "Attach a copied picture. It is taken from the clipboard."] = ("c-v",)
    suspend: Annotated[_Keys, KEY_LIST, "Suspend alipes. `fg` in the shell continues it."] = ("c-z",)
    rewind: Annotated[
        _Keys, KEY_LIST, "Go back to a message. Only with an empty input; restores the conversation, the files or both."
    ] = (REWIND_KEY,)
    take_back: Annotated[
        _Keys, KEY_LIST, "Edit a queued message. Takes the newest one back into the input, if the input is empty."
    ] = ("up", "a-up")
    stash: Annotated[
        _Keys, KEY_LIST, "Put the draft aside. Pressed again, it comes back; a new draft changes places with it."
    ] = ("c-s",)
    editor: Annotated[_Keys, KEY_LIST, "Open your editor. Uses `$VISUAL` or `$EDITOR`."] = ("c-g", "c-x c-e")
    expand: Annotated[
        _Keys, KEY_LIST, "Show more output. The last shortened output in full; again: the whole transcript in a pager."
    ] = ("c-o",)
    cycle_mode: Annotated[_Keys, KEY_LIST, "Change the permission mode. From ask to edits to plan."] = ("s-tab",)
    pick_model: Annotated[_Keys, KEY_LIST, "Choose a model."] = ("c-l",)
    pick_conversation: Annotated[_Keys, KEY_LIST, "Choose a conversation."] = ("c-x c-r",)
    complete: Annotated[_Keys, KEY_LIST, "Complete. Commands, their arguments and files; in a menu: the next row."] = (
        "tab",
    )
    search: Annotated[_Keys, KEY_LIST, "Search the input history."] = ("c-r",)
    clear_screen: Annotated[_Keys, KEY_LIST, "Clear the screen. The scrollback keeps its content."] = ("c-x c-l",)
    show_keys: Annotated[
        _Keys, KEY_LIST, "Show the keys. Only with an empty input; pressed again, it types the character."
    ] = ("?",)


EDITING_KEYS = (
    (("c-a", "c-e"), "Go to the start or end of the line."),
    (("a-b", "a-f"), "Go back or forward by a word."),
    (("c-w", "a-d"), "Delete the word before or after the cursor."),
    (("c-u", "c-k"), "Delete to the start or end of the line."),
    (("c-y", "c-_"), "Insert the deleted text again; undo."),
    (("up", "down"), "Go up or down a line, through the history, or through a list."),
)
"""Keys for editing that are not settings, in the default editing mode."""


def find_conflicts(keys: KeysConfig) -> Iterator[tuple[str, str]]:
    """Each action whose keys cannot work, with the reason."""
    owners: list[tuple[str, str]] = []
    for action in keys.__struct_fields__:
        for key in getattr(keys, action):
            if is_character(key) and action != "show_keys":
                yield action, f'keys.{action} = "{key}" is a character that you type: add c- or a-'
            for other, owner in owners:
                if clash := _describe_clash(key, other):
                    yield (
                        action,
                        f"keys.{action} and keys.{owner} {clash}: give one of them another key, or [] for none",
                    )
            owners.append((key, action))


def _describe_clash(key: str, other: str) -> str:
    if key == other:
        return f'both use "{key}"'
    short, long = sorted((key, other), key=len)
    if long.startswith(f"{short} ") and long != REWIND_KEY:
        return f'conflict, because "{long}" starts with "{short}"'
    return ""


_LABELS = {"c": "Ctrl", "a": "Alt", "s": "Shift", "escape": "Esc", "pageup": "PageUp", "pagedown": "PageDown"}


def format_key(key: str) -> str:
    """The key as people write it: `Ctrl-X Ctrl-E`."""
    return " ".join(_format_stroke(stroke) for stroke in key.split())


def _format_stroke(stroke: str) -> str:
    parts = []
    while len(stroke) > 2 and stroke[1] == "-":
        parts.append(_LABELS[stroke[0]])
        stroke = stroke[2:]
    name = _LABELS.get(stroke) if len(stroke) > 1 else None
    last = name or (stroke if len(stroke) == 1 and not parts else stroke[:1].upper() + stroke[1:])
    return "-".join([*parts, last])


def key_table(keys: KeysConfig) -> list[tuple[str, str]]:
    """The keys of every action that has some, and its description; then the keys for editing."""
    fields = [(getattr(keys, field.name), get_args(field.type)[2]) for field in structs.fields(KeysConfig)]
    return [(", ".join(map(format_key, used)), text) for used, text in (*fields, *EDITING_KEYS) if used]


def short_key_table(keys: KeysConfig) -> list[tuple[str, str]]:
    """The first two keys of every action, and the first sentence of its description."""
    fields = [(getattr(keys, field.name), get_args(field.type)[2]) for field in structs.fields(KeysConfig)]
    return [
        (", ".join(map(format_key, used[:2])), text.split(". ")[0].rstrip(".").lower()) for used, text in fields if used
    ]
