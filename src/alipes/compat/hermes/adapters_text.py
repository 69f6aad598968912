"""A long text in pieces that a platform takes. Pure."""

from collections.abc import Callable

FENCE = "```"
_ROOM = 24
"""For what closes and opens a block of code again."""


def pieces(text: str, most: int, length: Callable[[str], int] = len) -> list[str]:
    """`text` in order, none longer than `most`; broken at lines, else at blanks, else anywhere.

    A block of code that is broken is closed, and opened again in the next piece. `length`: as the
    platform counts.
    """
    if most <= 0 or length(text) <= most:
        return [text]
    room = max(most - _ROOM if FENCE in text else most, 1)
    found: list[str] = []
    opened = ""
    while text:
        piece, text = _broken(text, room, length)
        whole = f"{opened}{piece}"
        opened = _open_fence(whole)
        found.append(f"{whole.rstrip()}\n{FENCE}" if opened and text else whole.rstrip())
    return [piece for piece in found if piece.strip()]


def _broken(text: str, room: int, length: Callable[[str], int]) -> tuple[str, str]:
    if length(text) <= room:
        return text, ""
    at = room
    while length(text[:at]) > room:  # the platform counts otherwise than we do
        at -= 1
    head = text[: max(at, 1)]
    for mark in ("\n\n", "\n", " "):
        cut = head.rfind(mark)
        if cut >= len(head) // 4:
            return text[:cut], text[cut:].lstrip("\n" if "\n" in mark else " ")
    return head, text[len(head) :]


def _open_fence(text: str) -> str:
    """The line that opens the block again in which `text` ends; empty when it ends in none."""
    opened = ""
    for line in text.split("\n"):
        if line.lstrip().startswith(FENCE):
            opened = "" if opened else f"{line.strip()[: _ROOM - len(FENCE) - 2]}\n"
    return opened
