"""What is sent about runs and told of them: the bodies of requests and answers. Pure values."""

import binascii
import re
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from alipes.kernel.messages import Image
from alipes.kernel.turns import ApprovalAsked, Asked, Consent, Ending, TurnEnded, Usage
from alipes.store.export import TurnFacts

Words: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1_000_000)]
Name: TypeAlias = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Picture: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^data:image/(png|jpeg|gif|webp);base64,"
        r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$",
        description="A picture as a data URL.",
    ),
]
Status: TypeAlias = Literal["queued", "running", "waiting"] | Ending
"""`waiting`: for a person's word; see `waits_for`."""


class RunBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What the agent is to do."""

    input: Words
    session: Name = ""
    """The name of a conversation, which is begun if need be, or the id of one; empty: one of its own."""
    model: Name = ""
    instructions: str = ""
    """Added to the system prompt, for this run alone."""
    images: tuple[Picture, ...] = ()
    tools: tuple[str, ...] | None = None
    """The tools it may use, by name; null: all."""
    busy: Literal["queue", "interrupt", "steer"] = "queue"
    """What it does where the session is at work: wait, end that run, or be taken in by it."""
    on_disconnect: Literal["continue", "stop"] = "continue"
    """What it does when the last who listens to its events goes away."""


class SteerBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Something more for a run that lives; it takes it in at its next step."""

    input: Words
    images: tuple[Picture, ...] = ()


class ApprovalBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A word on a call that waits for one."""

    choice: Consent
    ask: Name = ""
    """Which one; empty: the only one there is."""


class ReplyBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An answer to a question of the model's."""

    text: Words
    ask: Name = ""
    """To which one; empty: the only one there is."""


class Run(Struct, frozen=True, omit_defaults=True):
    id: str
    session: str
    """The name of its conversation."""
    status: Status
    session_id: str = ""
    input: str = ""
    text: str = ""
    """What was answered last."""
    detail: str = ""
    """Why it ended so."""
    created: float | None = None
    ended: float | None = None
    attempts: int = 0
    """How often it was begun: more than once where the process was restarted."""
    usage: Usage | None = None
    waits_for: tuple[ApprovalAsked | Asked, ...] = ()


class Steered(Struct, frozen=True):
    run: str
    message: str
    """The id of what was said: a run of its own, which ends as `steered` once it is taken in."""


def pictures(given: tuple[str, ...]) -> tuple[Image, ...]:
    return tuple(_picture(url) for url in given)


def _picture(url: str) -> Image:
    head, _, data = url.partition(",")
    found = re.match(r"data:([^;]+)", head)
    assert found is not None  # its form was checked when it was read
    return Image(found[1], binascii.a2b_base64(data))


def told(facts: TurnFacts, waits_for: tuple[ApprovalAsked | Asked, ...] = ()) -> Run:
    spoken = (each.text for each in reversed(facts.said) if each.role == "assistant")
    return Run(
        id=facts.id,
        session=facts.inbound.address.chat,
        status=_status(facts, waits_for),
        session_id=facts.session,
        input=facts.inbound.text,
        text=next(spoken, ""),
        detail=facts.detail,
        created=facts.created,
        ended=facts.ended,
        attempts=facts.attempts,
        usage=facts.spent.usage if facts.spent.calls else None,
        waits_for=waits_for,
    )


def _status(facts: TurnFacts, waits_for: tuple[ApprovalAsked | Asked, ...]) -> Status:
    if facts.ending is not None:
        return facts.ending
    if waits_for:
        return "waiting"
    return "running" if facts.attempts else "queued"


def ending(facts: TurnFacts) -> TurnEnded:
    """The last event of a run that is over."""
    assert facts.ending is not None
    return TurnEnded(facts.id, facts.ending, facts.detail, facts.spent.usage)
