"""Open approval requests of sessions on plugin platforms."""

from collections.abc import Callable
from threading import RLock
from typing import Literal, get_args

from msgspec import Struct

from alipes.kernel.turns import AnswerApproval, ApprovalAsked, ApprovalChoice

HermesChoice = Literal["once", "session", "always", "deny"]
CONSENTS: dict[str, ApprovalChoice] = {"once": "once", "session": "session", "always": "always", "deny": "no"}
CONSENTS |= {"approve": "once", "yes": "once", "permanent": "always", "no": "no"}
assert {*CONSENTS.values()} == {*get_args(ApprovalChoice)}


class OpenApproval(Struct, frozen=True):
    request: ApprovalAsked
    answer: Callable[[AnswerApproval], None]
    """Callable from any thread."""


class OpenApprovals:
    """Open approval requests by session key, oldest first. Callable from any thread."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[OpenApproval]] = {}
        self._lock = RLock()

    def put(self, key: str, request: ApprovalAsked, answer: Callable[[AnswerApproval], None]) -> None:
        with self._lock:
            self._waiting.setdefault(key, []).append(OpenApproval(request, answer))

    def drop(self, key: str, ask: str = "") -> None:
        """Remove an answered request; without `ask`, all of the key."""
        with self._lock:
            self._drop(key, ask)

    def _drop(self, key: str, ask: str) -> None:
        left = [each for each in self._waiting.get(key, ()) if ask and each.request.ask != ask]
        if left:
            self._waiting[key] = left
        else:
            self._waiting.pop(key, None)

    def find(self, ask: str) -> ApprovalAsked | None:
        """The open request with this id."""
        with self._lock:
            waiting = (each.request for those in self._waiting.values() for each in those)
            return next((request for request in waiting if request.ask == ask), None)

    def has_open(self, key: str) -> bool:
        return key in self._waiting

    def resolve(self, key: str, choice: str, *, everything: bool = False, by: str = "") -> int:
        """Answer the oldest request or all of them. Returns how many there were."""
        consent = CONSENTS.get(choice.lower())
        if consent is None:
            raise ValueError(f"unknown answer {choice!r}; use {', '.join(get_args(HermesChoice))}")
        with self._lock:
            waiting = self._waiting.get(key, [])
            chosen = list(waiting) if everything else waiting[:1]
            for each in chosen:
                self._drop(key, each.request.ask)
        for each in chosen:
            each.answer(AnswerApproval(each.request.ask, consent, by))
        return len(chosen)


OPEN_APPROVALS = OpenApprovals()
"""One per process is enough: session keys are unique."""
