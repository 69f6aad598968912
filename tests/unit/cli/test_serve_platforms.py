"""From settings to what is served: which platforms, how, and which files may leave."""

import asyncio
from pathlib import Path

import pytest

from alipes.cli.serve.platforms import Front, Gate, HeldBack, answering
from alipes.config.platforms import Messengers, Telegram
from alipes.config.settings import Settings
from alipes.kernel.messages import Message, Text
from alipes.kernel.models import Secret
from alipes.kernel.platform import Arrival
from alipes.kernel.turns import Address, Inbound, Said, Turn

HERE = Address("telegram", "7")


def said(text: str) -> tuple[Turn, Said]:
    turn = Turn("t", "s", Inbound("i", HERE, "7", "send it"))
    return turn, Said(Message("assistant", (Text(text),)))


def settings(home: Path, workdir: Path) -> Settings:
    return Settings(
        home=home, workdir=str(workdir), messengers=Messengers(telegram=Telegram(token=Secret("1:token")))
    )


@pytest.mark.parametrize(
    ("home", "work", "leaves"),
    [("home", "work", True), ("work/home", "work", False), ("work", "work", False)],
)
async def test_files_of_the_workdir_may_leave_unless_our_own_secrets_are_below_it(
    tmp_path, home, work, leaves
):
    (tmp_path / home).mkdir(parents=True)
    (tmp_path / work).mkdir(exist_ok=True)
    file = tmp_path / work / "plot.png"
    file.write_bytes(b"picture")
    front = Front(settings(tmp_path / home, tmp_path / work))
    (owed,) = front.owing(*said(f"There you are.\nMEDIA: {file}"))
    assert [media.path for media in owed.media] == ([str(file)] if leaves else [])


async def test_secrets_never_leave_and_what_is_made_to_be_sent_does(tmp_path):
    home = tmp_path / "home"
    (home / "outgoing").mkdir(parents=True)
    (home / ".env").write_text("KEY=canary")
    (home / "outgoing" / "report.pdf").write_bytes(b"pdf")
    front = Front(settings(home, tmp_path))
    (owed,) = front.owing(
        *said(f"MEDIA: {home}/.env\nMEDIA: {home}/outgoing/../.env\nMEDIA: {home}/outgoing/report.pdf")
    )
    assert [media.name for media in owed.media] == ["report.pdf"]


async def test_a_platform_without_a_token_is_owed_nothing(tmp_path):
    front = Front(Settings(home=tmp_path))
    assert front.owing(*said("hello")) == ()


class Speaks:
    """A platform that hands over three things at once."""

    name = "speaks"

    async def listen(self, take, tell):
        async with asyncio.TaskGroup() as group:
            for text, pressed in (("words", ""), ("/stop", ""), ("", "yes")):
                group.create_task(take(Arrival("1", HERE, "7", text=text, pressed=pressed)))


async def test_once_we_leave_words_are_held_back_and_commands_and_buttons_pass():
    leaving, taken = asyncio.Event(), []

    async def take(arrival):
        taken.append(arrival.text or arrival.pressed)

    gate = Gate(Speaks(), leaving)
    await gate.listen(take, lambda *_: None)
    assert taken == ["words", "/stop", "yes"] and gate.name == "speaks"
    taken.clear()
    leaving.set()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await gate.listen(take, lambda *_: None)
    assert taken == ["/stop", "yes"], "the platform keeps what was not taken"


async def test_who_brings_a_message_while_we_leave_is_told_at_once_to_bring_it_again():
    leaving, taken = asyncio.Event(), []
    leaving.set()

    class Pushed(Speaks):
        async def listen(self, take, tell):
            self.take = take

        async def on_webhook(self, headers, body):
            await self.take(Arrival("1", HERE, "7", text=body.decode()))
            return 200

    async def take(arrival):
        taken.append(arrival.text)

    platform = Pushed()
    await Gate(platform, leaving, pushed=True).listen(take, lambda *_: None)
    bring = answering(platform.on_webhook)
    assert await bring({}, b"words") == 503
    assert await bring({}, b"/stop") == 200
    assert taken == ["/stop"]
    with pytest.raises(HeldBack):
        await platform.on_webhook({}, b"words")
