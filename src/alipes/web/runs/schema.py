"""Request and response bodies of the runs API."""

import binascii
import re
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from alipes.kernel.messages import Image
from alipes.kernel.turns import ApprovalAsked, ApprovalChoice, Ending, QuestionAsked, TurnEnded, Usage
from alipes.store.export import TurnFacts

InputText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1_000_000)]
Name: TypeAlias = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
ImageDataUrl: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^data:image/(png|jpeg|gif|webp);base64,"
        r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$",
        description="An image as a data URL.",
    ),
]
Status: TypeAlias = Literal["queued", "running", "waiting"] | Ending
"""`waiting`: for an answer from a person; see `waits_for`."""


class RunBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A new run."""

    input: InputText
    session: Name = ""
    """Name (created if needed) or id of a conversation; empty means a new one."""
    model: Name = ""
    instructions: str = ""
    """Added to the system prompt of this run."""
    images: tuple[ImageDataUrl, ...] = ()
    tools: tuple[str, ...] | None = None
    """Names of the tools it may use; null means all."""
    busy: Literal["queue", "interrupt", "steer"] = "queue"
    """If the session is busy: wait, stop the current run, or join it."""
    on_disconnect: Literal["continue", "stop"] = "continue"
    """When the last client disconnects from its events: continue or stop."""


class SteerBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Another message for a live run, read at its next step."""

    input: InputText
    images: tuple[ImageDataUrl, ...] = ()


class ApprovalBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to an approval request."""

    choice: ApprovalChoice
    ask: Name = ""
    """Id of the request; may be empty if only one is open."""


class ReplyBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to a question of the model."""

    text: InputText
    ask: Name = ""
    """Id of the question; may be empty if only one is open."""


class Run(Struct, frozen=True, omit_defaults=True):
    id: str
    session: str
    """Name of its conversation."""
    status: Status
    session_id: str = ""
    input: str = ""
    text: str = ""
    """The last answer."""
    detail: str = ""
    """Reason of the ending."""
    created: float | None = None
    ended: float | None = None
    attempts: int = 0
    """Number of starts; more than one after a restart of the process."""
    usage: Usage | None = None
    waits_for: tuple[ApprovalAsked | QuestionAsked, ...] = ()


class SteerResult(Struct, frozen=True):
    run: str
    message: str
    """Id of the message: a run of its own that ends as `steered` when it is read."""


def decode_images(urls: tuple[str, ...]) -> tuple[Image, ...]:
    return tuple(_decode_image(url) for url in urls)


def _decode_image(url: str) -> Image:
    head, _, data = url.partition(",")
    found = re.match(r"data:([^;]+)", head)
    assert found is not None  # the pattern was checked when it was decoded
    return Image(found[1], binascii.a2b_base64(data))


def run_document(facts: TurnFacts, waits_for: tuple[ApprovalAsked | QuestionAsked, ...] = ()) -> Run:
    answers = (each.text for each in reversed(facts.said) if each.role == "assistant")
    return Run(
        id=facts.id,
        session=facts.inbound.address.chat,
        status=_status(facts, waits_for),
        session_id=facts.session,
        input=facts.inbound.text,
        text=next(answers, ""),
        detail=facts.detail,
        created=facts.created,
        ended=facts.ended,
        attempts=facts.attempts,
        usage=facts.spent.usage if facts.spent.calls else None,
        waits_for=waits_for,
    )


def _status(facts: TurnFacts, waits_for: tuple[ApprovalAsked | QuestionAsked, ...]) -> Status:
    if facts.ending is not None:
        return facts.ending
    if waits_for:
        return "waiting"
    return "running" if facts.attempts else "queued"


def ending_event(facts: TurnFacts) -> TurnEnded:
    """The last event of a run that has ended."""
    assert facts.ending is not None
    return TurnEnded(facts.id, facts.ending, facts.detail, facts.spent.usage)
