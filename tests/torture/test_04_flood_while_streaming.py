"""Flood control and lost answers while an answer grows in a chat: people see it once, whole and formatted."""

import random
import time

import pytest

from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve
from tests.torture.homes import furnish, texts
from tests.torture.trials import LONG, seeds
from tests.world.model_server import ModelServer, Say
from tests.world.telegram_server import Fault, TelegramServer

STORY = "It **was** a night " + "of rain and wind " * 20 + "and `nobody` came."
SEEN = STORY.replace("*", "").replace("`", "")


def harm(dice: random.Random, wait: int) -> list[Fault]:
    """Flood errors on sending, editing and finalising; once an edit is accepted without a response."""
    kinds = [
        Fault("flood", ("sendMessage",), times=1, retry_after=wait),
        Fault(
            "flood", ("editMessageText",), times=dice.choice((2, 3)), skip=dice.randrange(2), retry_after=wait
        ),
        Fault("drop", ("editMessageText",), accepted=True, skip=dice.randrange(3)),
        Fault("fail", ("editMessageText",), skip=dice.randrange(3)),
        Fault("flood", ("sendChatAction",), times=None, retry_after=34),
    ]
    return dice.sample(kinds, dice.choice((3, 4, 5)))


@pytest.mark.deadline(300)
@pytest.mark.parametrize("seed", seeds(2, 20))
async def test_people_see_one_whole_answer(tmp_path, seed, figures):
    """In the long pass the wait is sometimes as long as users reported."""
    dice, home = random.Random(seed), Home(tmp_path / "home")
    replies = [Say(STORY, pieces=30, delay=0.08), Say("Good night.")]
    async with ModelServer(replies) as model, TelegramServer() as telegram:
        furnish(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            for fault in harm(dice, 34 if LONG and seed % 5 == 0 else dice.choice((1, 2))):
                telegram.fault(fault)
            telegram.chats.say("tell me a story", chat=OWNER)
            began = time.monotonic()
            await telegram.until(lambda: any(SEEN.strip() in text for text in texts(telegram, OWNER)))
            figures.worst("until the answer was whole", time.monotonic() - began, "s")
            telegram.chats.say("good night", chat=OWNER)
            await telegram.shows(OWNER, "Good night.")
            assert await served.left() == 0
        assert texts(telegram, OWNER) == [SEEN, "Good night."]
        kinds = {each["type"] for each in telegram.chats.mine(OWNER)[0].wire["entities"]}
        assert kinds == {"bold", "code"} and len(model.requests) == 2
