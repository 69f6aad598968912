"""Converts IRC lines to incoming messages."""

import hashlib
import re
import secrets
from collections.abc import Collection
from datetime import datetime

from alipes.kernel.platform import IncomingMessage
from alipes.kernel.turns import Address
from alipes.platforms.irc.protocol import CTCP, IrcLine, fold_name, is_channel, normalise_mask, strip_formatting
from alipes.platforms.state_files import MAX_AGE

NAME = "irc"
_NOBODY = ("", "*", "0")


def person_id(source: str, account: str) -> str:
    """Id of a person for access: their account, which nobody else can use; otherwise the whole
    `nick!user@host`. An account has no `!`, so the two cannot be confused."""
    return fold_name(account) if account not in _NOBODY and "!" not in account else normalise_mask(source)


def chat_address(target: str, nick: str, sender: str, *, per_user: bool) -> Address:
    """Address of a channel, or of a private conversation with one person, even if someone else takes their nick."""
    if is_channel(target):
        return Address(NAME, fold_name(target), "group", user=sender if per_user else "")
    return Address(NAME, fold_name(nick), user=sender)


def parse_message(
    line: IrcLine, sender: str, *, nicks: Collection[str], commands: Collection[str] = (), per_user: bool = False
) -> IncomingMessage | None:
    """An incoming message; None for anything that is not a message, such as CTCP. `nicks`: our names."""
    words = line.last
    if words.startswith(CTCP):
        kind, _, rest = words.strip(CTCP).partition(" ")
        if kind != "ACTION":
            return None
        words = f"* {rest}"
    text, called = _called(strip_formatting(words).strip(), nicks)
    group = is_channel(line.params[0])
    if not text:
        return None
    id = _id(line)
    return IncomingMessage(
        id=id,
        address=chat_address(line.params[0], line.nick, sender, per_user=per_user),
        sender=sender,
        name=line.nick,
        text=_command(text, commands),
        message=f"{line.nick} {id}",
        group=group,
        addressed=called or not group,
    )


def is_stale(line: IrcLine, now: float) -> bool:
    """True for an old line that a bouncer replays."""
    try:
        said = datetime.fromisoformat(line.tags.get("time", "").replace("Z", "+00:00")).timestamp()
    except ValueError:
        return False
    return now - said > MAX_AGE


def _id(line: IrcLine) -> str:
    """The server's message id; otherwise made from the time, so that a replay has the same id."""
    if given := line.tags.get("msgid"):
        return given
    if when := line.tags.get("time"):
        whole = "\n".join((when, line.source, *line.params))
        return f"{when}-{hashlib.blake2b(whole.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"
    return f"heard-{secrets.token_hex(8)}"


def parse_ctcp(line: IrcLine) -> tuple[str, str] | None:
    """Kind and text of a CTCP request."""
    words = line.last
    if not words.startswith(CTCP) or words.startswith(f"{CTCP}ACTION"):
        return None
    kind, _, rest = words.strip(CTCP).partition(" ")
    return kind.upper(), rest


def _called(text: str, nicks: Collection[str]) -> tuple[str, bool]:
    """The text without our nick before it, and whether we were mentioned: `nick: text` or `@nick`."""
    for nick in nicks:
        name = re.escape(nick)
        if match := re.match(rf"@?{name}\s*[:,]\s*|@{name}\s+", text, re.IGNORECASE):
            return text[match.end() :], True
        if re.search(rf"(?<!\S)@{name}(?![\w-])", text, re.IGNORECASE):
            return text, True
    return text, False


def _command(text: str, commands: Collection[str]) -> str:
    """IRC clients handle lines that start with a slash themselves, so `!stop` works too."""
    if match := re.match(r"!([a-z_-]+)(?=\s|$)", text):
        return f"/{text[1:]}" if match[1] in commands else text
    return text
