"""Questions that wait for a person's word on a platform, by session key. It asks nobody itself."""

from collections.abc import Callable
from threading import RLock
from typing import Literal, get_args

from msgspec import Struct

from alipes.kernel.turns import Answer, ApprovalAsked, Consent

Choice = Literal["once", "session", "always", "deny"]
WORDS: dict[str, Consent] = {"once": "once", "session": "session", "always": "always", "deny": "no"}
WORDS |= {"approve": "once", "yes": "once", "permanent": "always", "no": "no"}
assert {*WORDS.values()} == {*get_args(Consent)}


class Waiting(Struct, frozen=True):
    asked: ApprovalAsked
    answer: Callable[[Answer], None]
    """From any thread."""


class Asking:
    """The open questions, the oldest first. From any thread."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Waiting]] = {}
        self._alone = RLock()

    def put(self, key: str, asked: ApprovalAsked, answer: Callable[[Answer], None]) -> None:
        with self._alone:
            self._waiting.setdefault(key, []).append(Waiting(asked, answer))

    def drop(self, key: str, ask: str = "") -> None:
        """It was answered, or its turn is over; without `ask`, all of the key."""
        with self._alone:
            self._drop(key, ask)

    def _drop(self, key: str, ask: str) -> None:
        left = [each for each in self._waiting.get(key, ()) if ask and each.asked.ask != ask]
        if left:
            self._waiting[key] = left
        else:
            self._waiting.pop(key, None)

    def asked(self, ask: str) -> ApprovalAsked | None:
        """The question of that id, as long as it is open."""
        with self._alone:
            waiting = (each.asked for those in self._waiting.values() for each in those)
            return next((asked for asked in waiting if asked.ask == ask), None)

    def waits(self, key: str) -> bool:
        return key in self._waiting

    def resolve(self, key: str, choice: str, *, everything: bool = False, by: str = "") -> int:
        """Give the word on the oldest question, or on all; how many there were."""
        consent = WORDS.get(choice.lower())
        if consent is None:
            raise ValueError(f"{choice!r} is no answer; there are {', '.join(get_args(Choice))}")
        with self._alone:
            waiting = self._waiting.get(key, [])
            chosen = list(waiting) if everything else waiting[:1]
            for each in chosen:
                self._drop(key, each.asked.ask)
        for each in chosen:
            each.answer(Answer(each.asked.ask, consent, by))
        return len(chosen)


ASKING = Asking()
"""Keys name a conversation once and for all, so one is enough for a process."""
