"""`alipes serve` killed at every point of a delivery; then a late platform, an expired and an undeliverable message."""

import random
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import chain

import pytest

from tests.e2e.program import Home
from tests.e2e.service import open_serve
from tests.torture.homes import bot_texts, last_user_text, write_home
from tests.torture.trials import LONG, seeds
from tests.world.model_server import ModelServer, Say
from tests.world.telegram_server import Fault, TelegramServer
from tests.world.wait import until

POINTS = {
    "refused": Fault("fail", ("sendMessage",)),
    "unsent": Fault("hang", ("sendMessage",)),
    "accepted": Fault("hang", ("sendMessage",), accepted=True),
    "dropped": Fault("drop", ("sendMessage",), accepted=True),
    "stored": Fault("hang", ("sendMessage",), times=0),
}
"""Progress of a delivery when the process is killed; `stored`: sent and recorded."""
PER_CHAT = 3
OLD, POISONED = 91, 92
LATE = 2.0
"""Seconds until the platform is ready; sometimes ten times as many in the long pass."""
AGED = "UPDATE outbox SET created = created - 15 * 3600 WHERE json_extract(outbound, '$.text') = 'too old'"
ROWS = "SELECT json_extract(outbound, '$.text'), state, uncertain_part, attempts, lane FROM outbox"


def rows(home: Home) -> list[tuple[str, str, int, int, str]]:
    with closing(sqlite3.connect(home.path / "alipes.db")) as db:
        return db.execute(ROWS).fetchall()


def answers(telegram: TelegramServer, chat: int) -> list[str]:
    return [text for text in bot_texts(telegram, chat) if text.startswith("answer")]


def inject_faults(telegram: TelegramServer, rng: random.Random) -> dict[int, tuple[str, Fault]]:
    """One chat per point, with a random message at which it is reached."""
    faults = {}
    for chat, (name, fault) in enumerate(POINTS.items(), 10):
        one = Fault(fault.does, fault.methods, chat, fault.times, rng.randrange(PER_CHAT), accepted=fault.accepted)
        faults[chat] = (name, telegram.fault(one))
    return faults


@pytest.mark.deadline(120)
@pytest.mark.parametrize("seed", seeds(1, 20))
async def test_each_answer_arrives_once_wherever_delivery_was_interrupted(tmp_path, seed, figures):
    rng, home = random.Random(seed), Home(tmp_path / "home")
    async with ModelServer(lambda body: Say(f"answer {last_user_text(body)}")) as model, TelegramServer() as telegram:
        write_home(home, model, telegram, lines=("gateway.tries = 2",))
        async with open_serve(home) as served:
            await served.ready()
            faults = inject_faults(telegram, rng)
            for number in range(PER_CHAT):
                for chat in faults:
                    telegram.chats.say(f"{chat}-{number}", chat=chat)
            await telegram.until(lambda: all(not fault.times for _, fault in faults.values()))
            await telegram.until(lambda: len(answers(telegram, 14)) == PER_CHAT)
            await until(
                lambda: sum(row[0].startswith("answer 14") and row[1] == "sent" for row in rows(home)) == PER_CHAT
            )
            await served.left(by=signal.SIGKILL)
        before = len(telegram.calls)
        for chat, text in ((OLD, "too old"), (POISONED, "poison"), (OLD, "still good")):
            telegram.chats.chat(chat)
            assert (await home.run("send", f"telegram:{chat}", text)).status == 0
        with closing(sqlite3.connect(home.path / "alipes.db")) as db, db:
            db.execute(AGED)
        telegram.clear_faults()
        telegram.fault(Fault("fail", ("sendMessage",), POISONED, times=None, status=500))
        telegram.fault(
            Fault("fail", ("get", "delete", "set"), times=None, seconds=LATE * (10 if LONG and seed % 4 == 0 else 1))
        )
        async with open_serve(home) as served:
            await telegram.until(lambda: all(len(set(answers(telegram, chat))) == PER_CHAT for chat in faults))
            await until(lambda: ("poison", "failed") in [row[:2] for row in rows(home)])
            await until(lambda: len(bot_texts(telegram, OLD)) == 2)
            assert await served.left() == 0
        extra = check_results(telegram, faults, home, before)
        figures.worst("answers sent twice, each marked uncertain", extra)
        figures.tried(len(faults) * PER_CHAT)


def check_results(telegram, faults, home, before) -> int:
    """The number of answers that arrived twice."""
    extra = 0
    doubtful = {row[0] for row in rows(home) if row[2]}
    for chat, (name, _) in faults.items():
        seen = answers(telegram, chat)
        assert list(dict.fromkeys(seen)) == [f"answer {chat}-{n}" for n in range(PER_CHAT)], (name, seen)
        twice = {text: times for text, times in Counter(seen).items() if times > 1}
        assert set(twice) <= doubtful and sum(twice.values()) <= 2, (name, twice)
        extra += len(twice)
        if name in ("refused", "stored"):
            assert not twice, name
    good, notice = bot_texts(telegram, OLD)
    assert good == "still good" and "too old" in notice != "too old", "an expired message is reported, not sent"
    states = {row[0]: row[1] for row in rows(home)}
    assert (states["too old"], states["poison"]) == ("expired", "failed")
    tried = [row[3] for row in rows(home) if row[0] == "poison"]
    assert tried == [2], "tried twice and no more"
    after = telegram.calls[before:]
    ready = next(n for n, call in enumerate(after) if call.method == "getupdates" and call.code == 200)
    spoke = [n for n, call in enumerate(after) if call.method.startswith(("send", "edit"))]
    assert min(chain(spoke, [len(after)])) > ready, "nothing is sent before the platform is ready"
    return extra
