"""What was said on IRC, as an `Arrival`: who said it where, and does it mean us. It asks nobody."""

import hashlib
import re
import secrets
from collections.abc import Collection
from datetime import datetime

from alipes.kernel.platform import Arrival
from alipes.kernel.turns import Address
from alipes.platforms.irc.protocol import CTCP, Line, fold, is_channel, person, unadorned

NAME = "irc"
OLDEST = 86_400.0
"""Seconds after which a line that was kept for us is not answered any more."""
_NOBODY = ("", "*", "0")


def who(source: str, account: str) -> str:
    """The id by which a person is let in: the name of the account they are logged in to, which nobody else
    can bear; else all of `nick!user@host`. An account has no `!`: neither is taken for the other."""
    return fold(account) if account not in _NOBODY and "!" not in account else person(source)


def address(target: str, nick: str, sender: str, *, per_user: bool) -> Address:
    """A channel is everybody's; a private conversation is the person's, whoever bears the nick later."""
    if is_channel(target):
        return Address(NAME, fold(target), "group", user=sender if per_user else "")
    return Address(NAME, fold(nick), user=sender)


def arrival(
    line: Line, sender: str, *, nicks: Collection[str], commands: Collection[str] = (), per_user: bool = False
) -> Arrival | None:
    """None for what says nothing to us, such as requests between programs. `nicks`: what we are called."""
    words = line.last
    if words.startswith(CTCP):
        kind, _, rest = words.strip(CTCP).partition(" ")
        if kind != "ACTION":
            return None
        words = f"* {rest}"
    text, called = _called(unadorned(words).strip(), nicks)
    group = is_channel(line.params[0])
    if not text:
        return None
    id = _id(line)
    return Arrival(
        id=id,
        address=address(line.params[0], line.nick, sender, per_user=per_user),
        sender=sender,
        name=line.nick,
        text=_command(text, commands),
        message=f"{line.nick} {id}",
        group=group,
        addressed=called or not group,
    )


def stale(line: Line, now: float) -> bool:
    """Is it a memory of long ago, brought by somebody who kept it for us?"""
    try:
        said = datetime.fromisoformat(line.tags.get("time", "").replace("Z", "+00:00")).timestamp()
    except ValueError:
        return False
    return now - said > OLDEST


def _id(line: Line) -> str:
    """The server's; else by when it was said, so that it is the same when it is brought again."""
    if given := line.tags.get("msgid"):
        return given
    if when := line.tags.get("time"):
        whole = "\n".join((when, line.source, *line.params))
        return f"{when}-{hashlib.blake2b(whole.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"
    return f"heard-{secrets.token_hex(8)}"


def requested(line: Line) -> tuple[str, str] | None:
    """What a program asks of ours (CTCP), and its words."""
    words = line.last
    if not words.startswith(CTCP) or words.startswith(f"{CTCP}ACTION"):
        return None
    kind, _, rest = words.strip(CTCP).partition(" ")
    return kind.upper(), rest


def _called(text: str, nicks: Collection[str]) -> tuple[str, bool]:
    """The words without our name before them, and whether it was there: `nick: words`, or `@nick`."""
    for nick in nicks:
        name = re.escape(nick)
        if match := re.match(rf"@?{name}\s*[:,]\s*|@{name}\s+", text, re.IGNORECASE):
            return text[match.end() :], True
        if re.search(rf"(?<!\S)@{name}(?![\w-])", text, re.IGNORECASE):
            return text, True
    return text, False


def _command(text: str, commands: Collection[str]) -> str:
    """Programs for IRC keep a line that begins with a slash to themselves, so `!stop` does as well."""
    if match := re.match(r"!([a-z_-]+)(?=\s|$)", text):
        return f"/{text[1:]}" if match[1] in commands else text
    return text
