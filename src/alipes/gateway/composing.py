"""What came in, as the message that a model reads: quotations marked, files named, who speaks. Pure."""

from collections.abc import Sequence

from alipes.kernel.platforms import Arrival, Filed
from alipes.kernel.turns import Inbound


def inbound(arrivals: Sequence[Arrival], *, workdir: str = "", edited: bool = False) -> Inbound:
    """Several are one message: those of an album, or of a burst of pictures."""
    first = arrivals[0]
    words = "\n".join(each.text for each in arrivals if each.text)
    files = [file for each in arrivals for file in each.files]
    images = tuple(image for each in arrivals for image in each.images)
    quoted = next((each.quoted for each in arrivals if each.quoted), "")
    return Inbound(
        first.id,
        first.address,
        first.sender,
        _text(first, f"edited: {words}" if edited else words, quoted, files),
        attachments=images,
        workdir=workdir,
        reply_to=first.message if first.group else "",
    )


def raw(arrival: Arrival) -> Inbound:
    """What plugins rule on: the person's own words and nothing around them."""
    return Inbound(arrival.id, arrival.address, arrival.sender, arrival.text, attachments=arrival.images)


def _text(arrival: Arrival, words: str, quoted: str, files: Sequence[Filed]) -> str:
    parts = [_quotation(quoted)] if quoted else []
    if words:
        parts.append(f"{_speaker(arrival)}{words}")
    parts += [_file(file) for file in files]
    return "\n\n".join(parts)


def _speaker(arrival: Arrival) -> str:
    """In a conversation that several people share, each message says whose it is."""
    shared = arrival.group and not arrival.address.user
    return f"{arrival.name or arrival.sender}: " if shared else ""


def _quotation(text: str) -> str:
    lines = "\n".join(f"> {line}" for line in text.splitlines())
    return f"[quoted, in the words of others:]\n{lines}"


def _file(file: Filed) -> str:
    about = ", ".join(each for each in (file.mime, f"{file.size:,} bytes" if file.size else "") if each)
    named = f" {file.name}" if file.name else ""
    return f"[{file.kind}{named}{f' ({about})' if about else ''} saved at {file.path}]"
