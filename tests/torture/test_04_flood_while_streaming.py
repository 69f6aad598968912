"""Flood limits and lost responses while an answer streams into a chat: people see it once, whole and formatted."""

import random
import time

import pytest

from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve
from tests.torture.homes import bot_texts, write_home
from tests.torture.trials import LONG, seeds
from tests.world.model_server import ModelServer, Say
from tests.world.telegram_server import Fault, TelegramServer

STORY = "It **was** a night " + "of rain and wind " * 20 + "and `nobody` came."
PLAIN_STORY = STORY.replace("*", "").replace("`", "")


def make_faults(rng: random.Random, wait: int) -> list[Fault]:
    """Flood errors on sending, editing and finalising; once an edit is accepted without a response."""
    kinds = [
        Fault("flood", ("sendMessage",), times=1, retry_after=wait),
        Fault("flood", ("editMessageText",), times=rng.choice((2, 3)), skip=rng.randrange(2), retry_after=wait),
        Fault("drop", ("editMessageText",), accepted=True, skip=rng.randrange(3)),
        Fault("fail", ("editMessageText",), skip=rng.randrange(3)),
        Fault("flood", ("sendChatAction",), times=None, retry_after=34),
    ]
    return rng.sample(kinds, rng.choice((3, 4, 5)))


@pytest.mark.deadline(300)
@pytest.mark.parametrize("seed", seeds(2, 20))
async def test_people_see_one_complete_answer(tmp_path, seed, figures):
    """In the long pass the wait is sometimes as long as users reported."""
    rng, home = random.Random(seed), Home(tmp_path / "home")
    replies = [Say(STORY, pieces=30, delay=0.08), Say("Good night.")]
    async with ModelServer(replies) as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            for fault in make_faults(rng, 34 if LONG and seed % 5 == 0 else rng.choice((1, 2))):
                telegram.fault(fault)
            telegram.chats.say("tell me a story", chat=OWNER)
            began = time.monotonic()
            await telegram.until(lambda: any(PLAIN_STORY.strip() in text for text in bot_texts(telegram, OWNER)))
            figures.worst("until the answer was complete", time.monotonic() - began, "s")
            telegram.chats.say("good night", chat=OWNER)
            await telegram.shows(OWNER, "Good night.")
            assert await served.left() == 0
        assert bot_texts(telegram, OWNER) == [PLAIN_STORY, "Good night."]
        kinds = {each["type"] for each in telegram.chats.mine(OWNER)[0].wire["entities"]}
        assert kinds == {"bold", "code"} and len(model.requests) == 2
