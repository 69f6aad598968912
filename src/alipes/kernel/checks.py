"""The result of one check of `alipes doctor` and of commands like it."""

from typing import Literal

from msgspec import Struct


class CheckResult(Struct, frozen=True):
    about: str
    state: Literal["ok", "note", "wrong"]
    """`note`: worth knowing, no action needed; `wrong`: the user must act."""
    says: str
    advice: str = ""
