"""`alipes serve` killed with -9 again and again while people write to it, also while it is down; and what is left.

Every message asks for an answer of its own, so that what is missing, there twice, or out of order can be told.
"""

import asyncio
import os
import random
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tests.world.environment import LIMIT_S
from tests.world.parrot import STEPS
from tests.world.serving import World, open_world
from tests.world.telegram_crowd import FIRST, token

VERBS = ("echo", "echo", "act", "act", "slow")
"""What people ask for: something at once, something to be done, something long."""
PATIENCE = LIMIT_S
"""Seconds after which an answer counts as lost."""


class Toll(Struct):
    """What it cost."""

    kills: int = 0
    messages: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    """There twice, or half, and nobody said that it might be so."""
    marked: list[str] = field(default_factory=list)
    """The same, and marked as uncertain: cut off between the sending and the word that it arrived."""
    reordered: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    """Commands that were run twice."""
    orphans: int = 0
    again: list[float] = field(default_factory=list)
    """Seconds from each start to the first answer."""

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.reordered or self.repeated or self.orphans)


async def besiege(folder: Path, seed: int, *, kills: int, chats: int = 20) -> Toll:
    """The same seed does the same; the moments fall where the machine lets them."""
    async with open_world(folder) as world:
        siege = _Siege(world, random.Random(seed), chats)
        await world.service.start()
        await world.messenger.call("polled")
        for _ in range(kills):
            await siege.storm()
        await siege.toll(kills)
        return siege.counted


class _Siege:
    def __init__(self, world: World, dice: random.Random, chats: int) -> None:
        self._world, self._dice, self._chats = world, dice, chats
        self._asked: dict[int, int] = defaultdict(int)
        """By chat, how many messages were written there."""
        self.counted = Toll()

    async def storm(self) -> None:
        """Everybody writes, it is killed, some write again, it comes back and answers all."""
        dice, service = self._dice, self._world.service
        people = range(FIRST, FIRST + self._chats)
        waiting = await self._write(people)
        await asyncio.sleep(dice.random() ** 2 * 1.5)  # more of the moments lie where more happens
        children = set(_descendants(service.pid))
        await service.kill()
        waiting |= await self._write(dice.sample(people, self._chats // 4))
        began, before = time.time(), await self._calls()
        await service.start()
        await self._answered(waiting)
        first = next(
            (call["at"] for call in (await self._calls(all=True))[before:] if _answers(call, waiting)), 0.0
        )
        if first:
            self.counted.again.append(first - began)
        self.counted.orphans += await _alive(children)

    async def _write(self, people: Any) -> set[str]:
        messages, tokens = [], set()
        for chat in people:
            number = self._asked[chat]
            self._asked[chat] += 1
            tokens.add(token(chat, number))
            messages.append({"text": f"{self._dice.choice(VERBS)} {token(chat, number)}", "chat": chat})
        await self._world.messenger.call("say_many", messages=messages)
        return tokens

    async def _calls(self, *, all: bool = False) -> Any:
        calls = await self._world.messenger.call("calls")
        return calls if all else len(calls)

    async def _answered(self, tokens: set[str]) -> None:
        """Until all of these stand in their chats, or patience is used up."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if not tokens - {_answer(one["text"]) for one in await self._world.messenger.call("sent")}:
                return
            await asyncio.sleep(0.1)

    async def toll(self, kills: int) -> None:
        counted, sent = self.counted, await self._world.messenger.call("sent")
        await self._world.service.leave()
        uncertain = _uncertain(self._world.service.home)
        counted.kills, counted.messages = kills, sum(self._asked.values())
        rooms: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for one in sorted(sent, key=lambda one: one["id"]):
            rooms[one["chat"]].append(one)
        for chat, asked in self._asked.items():
            self._look(rooms[chat], [token(chat, number) for number in range(asked)], uncertain)
        steps = self._world.service.work / STEPS
        lines = steps.read_text().split() if steps.exists() else []
        counted.repeated = sorted({line for line in lines if lines.count(line) > 1})

    def _look(self, room: list[dict[str, Any]], tokens: list[str], uncertain: set[str]) -> None:
        counted, order = self.counted, []
        for each in tokens:
            holding = [one["id"] for one in room if _answer(one["text"]) == each]
            if not holding:
                counted.lost.append(each)
                continue
            order.append((holding[0], each))
            if len(holding) > 1:
                (counted.marked if each in uncertain else counted.doubled).append(each)
        if order != sorted(order):
            counted.reordered.append(f"{[each for _, each in order]}")
        for one in room:  # shown unfinished, and nobody made it whole
            if one["text"].startswith("word") and not _answer(one["text"]):
                may_be = uncertain & set(tokens)
                (counted.marked if may_be else counted.doubled).append(f"half of {one['chat']}:{one['id']}")


def _answer(text: str) -> str:
    """Which message this is the whole answer to; empty for what is none: a notice, a tool at work, a half."""
    *before, last = text.split() or [""]
    return last if last[:1] == "x" and set(before) <= {"word"} else ""


def _answers(call: dict[str, Any], tokens: set[str]) -> bool:
    return call["code"] == 200 and _answer(str(call["given"].get("text", ""))) in tokens


def _uncertain(home: Path) -> set[str]:
    """The answers of which the outbox says that they may be there twice."""
    database = sqlite3.connect(home / "alipes.db")
    with suppress(sqlite3.OperationalError):
        rows = database.execute(
            "SELECT json_extract(outbound, '$.text') FROM debts WHERE uncertain"
        ).fetchall()
    database.close()
    return {text.split()[-1] for (text,) in rows if text and text.split()}


def _descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Children and theirs, each with the moment of its start: numbers are given out again."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in map(int, children):
        if began := _began(child):
            yield child, began
        yield from _descendants(child)


def _began(pid: int) -> str:
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]


async def _alive(children: set[tuple[int, str]]) -> int:
    """How many of them are still there after a while; what watches over the others ends last."""
    for _ in range(40):
        left = [pid for pid, began in children if _began(pid) == began]
        if not left:
            return 0
        await asyncio.sleep(0.05)
    for pid in left:
        with suppress(ProcessLookupError):
            print("left:", Path(f"/proc/{pid}/cmdline").read_bytes())
            os.kill(pid, 9)
    return len(left)
