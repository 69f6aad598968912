"""The platforms of `alipes serve`, and which files may be sent."""

from pathlib import Path

import pytest

from alipes.cli.serve.platforms import ServedPlatforms
from alipes.config.messengers import Messengers
from alipes.config.settings import Settings
from alipes.kernel.messages import Message, Text, ToolResult
from alipes.kernel.models import Secret
from alipes.kernel.turns import Address, Inbound, Said, Turn
from alipes.platforms.telegram.settings import TelegramConfig

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
