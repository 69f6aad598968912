"""Checks the history of a cluster: what people wrote, what the tables hold, what tools did and what was sent.

`HISTORY_SQL` adds to a schema what the tables alone do not tell: each claim of a session. The order of claims and
messages is that of their commits, so the server needs `track_commit_timestamp = on`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, TypeVar

from msgspec import Struct

T = TypeVar("T")
COMMIT_SLACK_S = 0.05
"""A tool call is late if it began this long after the commit that took its session away."""
HISTORY_SQL = """
CREATE TABLE IF NOT EXISTS history_claims (key text, epoch bigint, holder text);
CREATE OR REPLACE FUNCTION note_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' OR NEW.epoch <> OLD.epoch THEN
        INSERT INTO history_claims VALUES (NEW.key, NEW.epoch, NEW.holder);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER history_claims AFTER INSERT OR UPDATE ON leases
    FOR EACH ROW EXECUTE FUNCTION note_claim();
"""


class Asked(Struct, frozen=True):
    """A message that a person wrote and the gateway accepted, in the order of its chat."""

    key: str
    inbound: str
    """The platform's id."""
    token: str
    """The word that only its answer contains."""


class TurnFact(Struct, frozen=True):
    number: int
    id: str
    key: str
    inbound: str
    ending: str | None


class MessageFact(Struct, frozen=True):
    number: int
    turn: int
    session: str
    role: str
    text: str = ""
    calls: tuple[str, ...] = ()
    """The ids of the tool calls that it asks for."""
    answers: str = ""
    """The call whose result it is."""
    epoch: int = 0
    """That of the claim under which it was written; 0: not known."""
    at: float = 0.0
    """When it was committed."""


class ClaimFact(Struct, frozen=True):
    key: str
    epoch: int
    holder: str
    at: float
    """When it was committed."""


class EffectFact(Struct, frozen=True):
    """A tool call that began; tools append it to a file before they act."""

    worker: str
    key: str
    turn: str
    epoch: int
    call: str
    at: float


class DeliveryFact(Struct, frozen=True):
    lane: str
    text: str
    state: str
    uncertain: bool = False


class SendFact(Struct, frozen=True):
    """A message that the messenger accepted, in the order in which it did."""

    lane: str
    text: str


class History(Struct):
    asked: list[Asked] = []
    turns: list[TurnFact] = []
    messages: list[MessageFact] = []
    claims: list[ClaimFact] = []
    believed: list[ClaimFact] = []
    """Claims as workers saw them."""
    effects: list[EffectFact] = []
    deliveries: list[DeliveryFact] = []
    sends: list[SendFact] = []
    server_crashed: bool = False
    """PostgreSQL was stopped at once, so that it may have lost commits that nobody waited for."""


class Violation(Struct, frozen=True):
    rule: str
    what: str


def check_history(history: History) -> list[Violation]:
    """All violations, ordered by rule."""
    rules = (
        _check_endings,
        _check_holders,
        _check_late_rows,
        _check_transcripts,
        _check_deliveries,
        _check_sends,
        _check_effects,
    )
    return [violation for rule in rules for violation in rule(history)]


def count_by_rule(violations: Iterable[Violation]) -> dict[str, int]:
    return dict(Counter(violation.rule for violation in violations))


def _check_endings(history: History) -> Iterator[Violation]:
    """Each accepted message is one turn, and it ended."""
    turns = _group(history.turns, lambda turn: turn.inbound)
    for asked in history.asked:
        match turns.get(asked.inbound, []):
            case []:
                yield Violation("lost", f"message {asked.inbound} was accepted and is no turn")
            case [turn]:
                if turn.ending is None:
                    yield Violation("unfinished", f"turn {turn.id} of {turn.key} has no ending")
            case found:
                yield Violation("doubled", f"message {asked.inbound} is {len(found)} turns")


def _check_holders(history: History) -> Iterator[Violation]:
    """An epoch belongs to one holder, and a session's epochs rise. Claims are not synced: one that a crash of the server
    took back does not count, unless its worker acted under it."""
    kept = {(claim.key, claim.epoch, claim.holder) for claim in history.claims}
    acted = {(effect.key, effect.epoch, effect.worker) for effect in history.effects}
    everything = [*history.claims, *history.believed]
    for (key, epoch), claims in _group(everything, lambda claim: (claim.key, claim.epoch)).items():
        names = {claim.holder for claim in claims if claim.holder}
        if history.server_crashed:
            names = {name for name in names if (key, epoch, name) in kept | acted}
        if len(names) > 1:
            yield Violation("two holders", f"epoch {epoch} of {key} belongs to {sorted(names)}")
    for key, claims in _group(history.claims, lambda claim: claim.key).items():
        ordered = sorted(claims, key=lambda claim: claim.at)
        for before, after in pairwise(ordered):
            if after.epoch < before.epoch:
                yield Violation("epoch fell", f"{key}: {before.epoch}, then {after.epoch}")


def _check_late_rows(history: History) -> Iterator[Violation]:
    """No message is committed by a claim after a later claim was."""
    keys = {turn.number: turn.key for turn in history.turns}
    claims = _group(history.claims, lambda claim: claim.key)
    for message in history.messages:
        later = _first_later(claims.get(keys.get(message.turn, ""), []), message.epoch)
        if message.epoch and later is not None and later.at < message.at:
            what = f"message {message.number} of epoch {message.epoch} came after the claim of {later.epoch}"
            yield Violation("late row", what)


def _check_transcripts(history: History) -> Iterator[Violation]:
    """Turns do not mix, calls are answered at once, and an answered turn ends with one answer."""
    endings = {turn.number: turn.ending for turn in history.turns}
    for session, messages in _group(history.messages, lambda message: message.session).items():
        ordered = sorted(messages, key=lambda message: message.number)
        for before, after in pairwise(ordered):
            if after.turn < before.turn:
                yield Violation("mixed", f"session {session}: turn {after.turn} wrote after turn {before.turn}")
        for turn, own in _group(ordered, lambda message: message.turn).items():
            for what in _read_turn(own, endings.get(turn)):
                yield Violation("transcript", f"session {session}, turn {turn}: {what}")


def _read_turn(messages: list[MessageFact], ending: str | None) -> Iterator[str]:
    if messages[0].role != "user":
        yield f"starts with {messages[0].role}"
    unanswered = set[str]()
    answers = 0
    for place, message in enumerate(messages):
        if message.role == "tool":
            if message.answers not in unanswered:
                yield f"the result of {message.answers} answers no open call"
            unanswered.discard(message.answers)
        elif unanswered:
            yield f"message {message.number} came before the result of {sorted(unanswered)}"
        if message.role == "user" and place:
            yield f"the question is there twice (message {message.number})"
        if message.role == "assistant":
            unanswered |= set(message.calls)
            answers += not message.calls
    if unanswered:
        yield f"{sorted(unanswered)} has no result"
    if ending == "answered" and (answers != 1 or messages[-1].role != "assistant"):
        yield f"ends with {messages[-1].role} and has {answers} answers"


def _check_deliveries(history: History) -> Iterator[Violation]:
    for delivery in history.deliveries:
        if delivery.state != "sent":
            yield Violation("not delivered", f"{delivery.text!r} to {delivery.lane} is {delivery.state}")


def _check_sends(history: History) -> Iterator[Violation]:
    """Each answer arrives once, unless the outbox says that this is uncertain; those of a chat in order."""
    uncertain = [delivery.text for delivery in history.deliveries if delivery.uncertain]
    places = defaultdict[str, list[int]](list)
    for place, send in enumerate(history.sends):
        for word in set(send.text.split()):
            places[word].append(place)
    endings = {turn.inbound: turn.ending for turn in history.turns}
    for key, asked in _group(history.asked, lambda each: each.key).items():
        seen = list[int]()
        for each in asked:
            found = places.get(each.token, [])
            if not found and endings.get(each.inbound) == "answered":
                yield Violation("not sent", f"the answer {each.token} never arrived")
            if len(found) > 1 and not any(each.token in text.split() for text in uncertain):
                yield Violation("sent twice", f"the answer {each.token} arrived {len(found)} times")
            seen += found[:1]
        if seen != sorted(seen):
            yield Violation("reordered", f"the answers of {key} arrived in another order")


def _check_effects(history: History) -> Iterator[Violation]:
    """No tool call begins after its session was claimed by another, and none is run twice."""
    claims = _group(history.claims, lambda claim: claim.key)
    for effect in history.effects:
        later = _first_later(claims.get(effect.key, []), effect.epoch)
        if later is not None and later.holder != effect.worker and effect.at > later.at + COMMIT_SLACK_S:
            late_ms = (effect.at - later.at) * 1000
            what = f"call {effect.call} of epoch {effect.epoch} began {late_ms:.0f} ms after {later.holder} took over"
            yield Violation("late call", what)
    for (turn, call), times in Counter((effect.turn, effect.call) for effect in history.effects).items():
        if times > 1:
            yield Violation("run twice", f"call {call} of turn {turn} began {times} times")


def count_in_flight(history: History) -> int:
    """Tool calls whose results were written under a later claim: their turn was taken over during the call."""
    answered = {message.answers: message.epoch for message in history.messages if message.answers}
    return sum(answered.get(effect.call, 0) > effect.epoch for effect in history.effects)


def _first_later(claims: list[ClaimFact], epoch: int) -> ClaimFact | None:
    return min((claim for claim in claims if claim.epoch > epoch), key=lambda claim: claim.at, default=None)


def _group(values: Iterable[T], name: Any) -> dict[Any, list[T]]:
    groups: dict[Any, list[T]] = {}
    for value in values:
        groups.setdefault(name(value), []).append(value)
    return groups
