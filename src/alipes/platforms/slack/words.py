"""Slack's own writing of what a person said, as plain words: names in place of ids. It knows no events."""

import html
import logging
import re
from typing import Any

from alipes.kernel.errors import DeliveryError
from alipes.platforms.kept import put
from alipes.platforms.slack.calls import Calls

log = logging.getLogger(__name__)
NAMES = 2000
_ANGLED = re.compile(r"<([^<>\n]+)>")
_MENTION = re.compile(r"<@([A-Z0-9]+)(?:\|[^>]*)?>")


class People:
    """Names of people and channels, asked for once."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._names: dict[str, str] = {}

    async def name(self, person: str) -> str:
        """What they are called; their id where Slack does not tell."""
        if person not in self._names:
            try:
                told = await self._calls("asking for a name", "users_info", user=person)
            except DeliveryError as error:
                log.info("the name of %s could not be had: %s", person, error)
                return person
            put(self._names, person, _called(told["user"]) or person, NAMES)
        return self._names[person]

    async def words(self, text: str, me: str = "", *, asks: bool = True) -> str:
        """As a person reads it, without the mention that calls `me`. `asks`: for names not known yet."""
        if me:
            text = re.sub(rf"<@{me}(?:\|[^>]*)?>[ \t]?", "", text)
        mentioned = dict.fromkeys(_MENTION.findall(text))
        names = {id: await self.name(id) if asks else self._names.get(id, id) for id in mentioned}
        return html.unescape(_ANGLED.sub(lambda found: _plain(found[1], names), text)).strip()


def mentions(text: str, me: str) -> bool:
    return me in _MENTION.findall(text)


def _plain(inside: str, names: dict[str, str]) -> str:
    target, _, label = inside.partition("|")
    match target[:1]:
        case "@":
            return f"@{names.get(target[1:], label or target[1:])}"
        case "#":
            return f"#{label or target[1:]}"
        case "!":
            return label or f"@{target[1:].partition('^')[0]}"
    address = target.removeprefix("mailto:").removeprefix("tel:")
    return address if label in ("", address) or target.endswith(f"://{label}") else f"{label} ({address})"


def _called(user: dict[str, Any]) -> str:
    profile = user.get("profile", {})
    names = (profile.get("display_name"), profile.get("real_name"), user.get("real_name"), user.get("name"))
    return next((str(name) for name in names if name), "")
