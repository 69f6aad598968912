"""Makes a home with many conversations, for the figures of search and lists.

Written with SQL, because turns would take hours. Each conversation has two turns per four messages: a question and an
answer each. A tenth belongs to guests of a messenger, a tenth to callers of the API, the rest to the terminal.
"""

import asyncio
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from alipes.kernel.messages import Text, assistant, user
from alipes.kernel.turns import Address, Inbound
from alipes.runtime.json_text import to_json
from alipes.store.quick_reads import store_exists, store_files
from alipes.store.sql.turns import INBOUND_COLUMNS, address_columns, inbound_columns
from alipes.store.sqlite.store import open_store

GUESTS, CALLERS = 1_000, 50
WORDS = 30_000
"""Words of the language; the first are common, the last are rare."""
_PER_COMMIT = 500
_DAY_S = 86_400.0


class LargeHome(msgspec.Struct, frozen=True):
    folder: Path
    sessions: int
    messages: int
    words: tuple[str, ...]
    """The most common words."""
    rare: str
    """A word in a few messages."""

    @property
    def common(self) -> str:
        """A word in most of the messages."""
        return self.words[0]


def guest_address(number: int) -> Address:
    return Address("telegram", f"guest{number}")


def caller_address(session: int, number: int) -> Address:
    return Address("api", f"chat{session}", user=f"caller{number}")


def load_home(folder: Path, sessions: int, messages_each: int = 20) -> LargeHome:
    """The home in `folder`, created if it does not exist; takes about 0.1 ms per message."""
    vocabulary, stream = _make_language(random.Random(1))
    home = LargeHome(folder, sessions, sessions * messages_each, tuple(vocabulary[:10]), vocabulary[-1])
    if not store_exists(folder):
        _make_home(home, stream, messages_each)
    return home


def _make_home(home: LargeHome, stream: list[str], messages_each: int) -> None:
    folder, sessions = home.folder, home.sessions
    asyncio.run(_create(folder))
    chance, now = random.Random(2), time.time()
    with closing(sqlite3.connect(store_files(folder)[0], isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA cache_size = -200000")
        for start in range(0, sessions, _PER_COMMIT):
            db.execute("BEGIN")
            for number in range(start, min(start + _PER_COMMIT, sessions)):
                moment = now - (sessions - number) / sessions * 360 * _DAY_S
                insert_session(db, number, _address(number), _texts(chance, stream, messages_each), moment)
            db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


async def _create(folder: Path) -> None:
    async with open_store(folder):
        pass


def _make_language(chance: random.Random) -> tuple[list[str], list[str]]:
    """The words, and a long text in which they are as frequent as in a language."""
    letters = "etaoinshrdlucmfwygpbvk"
    vocabulary = dict[str, None]()
    while len(vocabulary) < WORDS:
        vocabulary["".join(chance.choices(letters, k=chance.randint(3, 9)))] = None
    words = list(vocabulary)
    weights = [1 / (rank + 2) for rank in range(WORDS)]
    return words, chance.choices(words, weights, k=1_000_000)


def _texts(chance: random.Random, stream: list[str], count: int) -> Iterator[str]:
    for _ in range(count):
        start, length = chance.randrange(len(stream) - 80), chance.randint(8, 70)
        yield " ".join(stream[start : start + length])


def _address(number: int) -> Address:
    match number % 10:
        case 0:
            return guest_address(number // 10 % GUESTS)
        case 1:
            return caller_address(number, number // 10 % CALLERS)
    return Address("terminal", f"terminal{number}")


def insert_session(db: sqlite3.Connection, number: int, address: Address, texts: Iterator[str], moment: float) -> None:
    """A conversation whose questions and answers are `texts`, two for each turn."""
    id = f"{number:012x}"
    key, title = address.key, f"conversation {number}" if number % 3 else ""
    sql = """INSERT INTO sessions (id, key, platform, address, chat, user_id, title, created, updated, workdir)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
    place = (id, key, *address_columns(address))
    db.execute(sql, (*place, title, moment, moment, f"/projects/{number % 50}"))
    db.execute("INSERT OR REPLACE INTO leases (key, session_id) VALUES (?, ?)", (key, id))
    for place, (question, answer) in enumerate(zip(texts, texts, strict=False)):
        _insert_turn(db, Inbound(f"{number}.{place}", address, "me", question), id, answer, moment + place)


def _insert_turn(db: sqlite3.Connection, inbound: Inbound, session: str, answer: str, moment: float) -> None:
    sql = f"""INSERT INTO turns (id, key, session_id, platform, inbound_id, inbound, epoch, attempts, ending, created,
        ended, started, {INBOUND_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, 1, 1, 'answered', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
    address, id = inbound.address, f"t{inbound.id}"
    times = (moment, moment, moment)
    row = (id, address.key, session, address.platform, inbound.id, to_json(inbound), *times, *inbound_columns(inbound))
    turn = db.execute(sql, row).lastrowid
    usage: tuple[Any, ...] = (900, 60, 500, 0, 0, 0.001)
    said = (("user", user(inbound.text), "", (None,) * 6), ("assistant", assistant(Text(answer)), "mock/test", usage))
    sql = f"""INSERT INTO messages (turn_number, session_id, role, message, model, input, output, cached, cache_write,
        reasoning, cost, created) VALUES ({", ".join("?" * 12)})"""
    for role, message, model, counts in said:
        number = db.execute(sql, (turn, session, role, to_json(message), model, *counts, moment)).lastrowid
        db.execute("INSERT INTO search_index (rowid, text) VALUES (?, ?)", (number, message.text))
