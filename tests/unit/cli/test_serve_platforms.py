"""The platforms of `alipes serve`, and which files may be sent."""

import asyncio
from pathlib import Path

import pytest

from alipes.cli.serve.platforms import DrainGate, MessageHeld, ServedPlatforms, refuse_when_held
from alipes.config.platforms import Messengers, TelegramConfig
from alipes.config.settings import Settings
from alipes.kernel.messages import Message, Text, ToolResult
from alipes.kernel.models import Secret
from alipes.kernel.platform import IncomingMessage
from alipes.kernel.turns import Address, Inbound, Said, Turn

HERE = Address("telegram", "7")


def made(*paths: Path) -> tuple[Turn, Said]:
    """A tool declares these files."""
    turn = Turn("t", "s", Inbound("i", HERE, "7", "send it"))
    return turn, Said(Message("tool", (ToolResult("c", "made", files=tuple(map(str, paths))),)))


def said(text: str) -> tuple[Turn, Said]:
    turn = Turn("t", "s", Inbound("i", HERE, "7", "send it"))
    return turn, Said(Message("assistant", (Text(text),)))


def settings(home: Path, workdir: Path) -> Settings:
    return Settings(
        home=home, workdir=str(workdir), messengers=Messengers(telegram=TelegramConfig(token=Secret("1:token")))
    )


@pytest.mark.parametrize(
    ("home", "work", "leaves"), [("home", "work", True), ("work/home", "work", False), ("work", "work", False)]
)
async def test_files_of_the_workdir_may_be_sent_unless_it_contains_the_home(tmp_path, home, work, leaves):
    (tmp_path / home).mkdir(parents=True)
    (tmp_path / work).mkdir(exist_ok=True)
    file = tmp_path / work / "plot.png"
    file.write_bytes(b"picture")
    platforms = ServedPlatforms(settings(tmp_path / home, tmp_path / work))
    outbounds = platforms.outbound(*made(file))
    assert [media.path for each in outbounds for media in each.media] == ([str(file)] if leaves else [])


async def test_secrets_are_never_sent_and_outgoing_files_are(tmp_path):
    home = tmp_path / "home"
    (home / "outgoing").mkdir(parents=True)
    (home / ".env").write_text("KEY=canary")
    (home / "outgoing" / "report.pdf").write_bytes(b"pdf")
    platforms = ServedPlatforms(settings(home, tmp_path))
    (outbound,) = platforms.outbound(
        *made(home / ".env", home / "outgoing" / ".." / ".env", home / "outgoing" / "report.pdf")
    )
    assert [media.name for media in outbound.media] == ["report.pdf"]


async def test_nothing_is_queued_for_a_platform_without_a_token(tmp_path):
    platforms = ServedPlatforms(Settings(home=tmp_path))
    assert platforms.outbound(*said("hello")) == ()


class Speaks:
    """A platform that hands over three things at once."""

    name = "speaks"

    async def listen(self, take, tell):
        async with asyncio.TaskGroup() as group:
            for text, pressed in (("words", ""), ("/stop", ""), ("", "yes")):
                group.create_task(take(IncomingMessage("1", HERE, "7", text=text, pressed=pressed)))


async def test_during_shutdown_messages_are_held_and_commands_and_buttons_pass():
    leaving, taken = asyncio.Event(), []

    async def take(arrival):
        taken.append(arrival.text or arrival.pressed)

    gate = DrainGate(Speaks(), leaving)
    await gate.listen(take, lambda *_: None)
    assert taken == ["words", "/stop", "yes"] and gate.name == "speaks"
    taken.clear()
    leaving.set()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await gate.listen(take, lambda *_: None)
    assert taken == ["/stop", "yes"], "the platform keeps what was not taken"


async def test_during_shutdown_a_pushed_message_is_answered_with_503():
    leaving, taken = asyncio.Event(), []
    leaving.set()

    class Pushed(Speaks):
        async def listen(self, take, tell):
            self.take = take

        async def on_webhook(self, headers, body):
            await self.take(IncomingMessage("1", HERE, "7", text=body.decode()))
            return 200

    async def take(arrival):
        taken.append(arrival.text)

    platform = Pushed()
    await DrainGate(platform, leaving, pushed=True).listen(take, lambda *_: None)
    bring = refuse_when_held(platform.on_webhook)
    assert await bring({}, b"words") == 503
    assert await bring({}, b"/stop") == 200
    assert taken == ["/stop"]
    with pytest.raises(MessageHeld):
        await platform.on_webhook({}, b"words")


async def test_while_the_cluster_is_full_messages_wait_and_commands_pass():
    answers, taken = [True, True, False], []

    async def is_full():
        return answers.pop(0)

    async def take(arrival):
        taken.append(arrival.text or arrival.pressed)

    await DrainGate(Speaks(), asyncio.Event(), is_full=is_full).listen(take, lambda *_: None)
    assert taken == ["/stop", "yes", "words"] and not answers


async def test_while_the_cluster_is_full_a_pushed_message_is_refused():
    async def is_full():
        return True

    class Pushed(Speaks):
        async def listen(self, take, tell):
            self.take = take

    platform = Pushed()
    await DrainGate(platform, asyncio.Event(), pushed=True, is_full=is_full).listen(None, lambda *_: None)
    with pytest.raises(MessageHeld):
        await platform.take(IncomingMessage("1", HERE, "7", text="words"))
