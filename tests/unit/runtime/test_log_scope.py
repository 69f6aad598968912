"""Logs of several profiles in one process."""

import asyncio
import logging

from alipes.runtime.log_file import log_scope, log_secrets, open_log

log = logging.getLogger("alipes.test")


async def _say(scope: str, text: str) -> None:
    with log_scope(scope):
        await asyncio.sleep(0)
        log.info("%s", text)
        await asyncio.to_thread(log.warning, "%s in a thread", text)


def test_each_log_gets_only_what_belongs_to_its_scope(tmp_path):
    with (
        open_log(tmp_path / "process.log", scope="") as shared,
        open_log(tmp_path / "work.log", scope="work", also=shared),
        open_log(tmp_path / "play.log", "error", scope="play", also=shared),
    ):
        asyncio.run(_say("work", "of work"))
        asyncio.run(_say("play", "of play"))
        log.info("of the process")
    work, play, process = ((tmp_path / f"{name}.log").read_text() for name in ("work", "play", "process"))
    assert "of work" in work and "of work in a thread" in work
    assert "of play" not in work + process and "of work" not in play + process
    assert "of the process" in process and "of the process" not in work
    assert play == "", "its level is error"


def test_the_log_of_the_process_masks_the_secrets_of_all_and_each_other_its_own(tmp_path):
    with (
        open_log(tmp_path / "process.log", scope="") as shared,
        open_log(tmp_path / "work.log", scope="work", also=shared) as work,
        open_log(tmp_path / "play.log", scope="play", also=shared) as play,
    ):
        with log_scope("work"):
            log_secrets().add("canary-of-work")
        assert work("canary-of-work") == "***" == shared("canary-of-work")
        assert play("canary-of-work") == "canary-of-work", "a registry of one profile knows nothing of the others"
