"""The log file: lines, ids, masks, rotation, several writers."""

import asyncio
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from alipes.kernel.errors import ConfigError
from alipes.runtime.logs import LogFile, about, open_log
from alipes.runtime.masking import masking

log = logging.getLogger("alipes.test")


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_record_is_one_line_that_says_when_how_grave_and_who(tmp_path):
    with open_log(tmp_path / "logs" / "a.log", "info"):
        log.info("hello %s\nsecond line", "world")
        log.debug("too fine")
    (record,) = lines(tmp_path / "logs" / "a.log")
    assert record["message"] == "hello world\nsecond line"
    assert (record["level"], record["logger"]) == ("info", "alipes.test")
    assert record["time"].endswith("+00:00")
    assert (tmp_path / "logs" / "a.log").stat().st_mode & 0o777 == 0o600


async def test_a_record_carries_the_ids_of_the_task_that_wrote_it(tmp_path):
    async def turn(session: str) -> None:
        with about(session=session, turn="t"):
            await asyncio.sleep(0)
            log.info("inside")

    with open_log(tmp_path / "a.log"):
        async with asyncio.TaskGroup() as group:
            group.create_task(turn("one"))
            group.create_task(turn("two"))
        log.info("outside")
    assert [r.get("session") for r in lines(tmp_path / "a.log")] == ["one", "two", None]


def test_secrets_are_masked_in_messages_arguments_names_ids_and_tracebacks(tmp_path):
    secret, odd = "sk-abc123", 'p+ss/"wörd\\'
    with open_log(tmp_path / "a.log", "debug", [secret, odd, "", "ab"]) as mask:
        with about(session=secret):
            log.info(
                "key %s in %r and https://host/?key=%s", secret, {"key": odd}, "p%2Bss%2F%22w%C3%B6rd%5C"
            )
            log.info("as json %s", json.dumps(odd, ensure_ascii=False))
        logging.getLogger(f"alipes.{secret}").warning("odd name")
        try:
            raise ValueError(f"told {secret}")
        except ValueError:
            log.exception("it failed")
        assert mask(f"<{secret}>") == "<***>"
    text = (tmp_path / "a.log").read_text()
    for canary in ("abc123", "wörd", "p+ss", "p%2Bss"):
        assert canary not in text
    assert "ValueError: told ***" in lines(tmp_path / "a.log")[-1]["trace"]


def test_of_two_secrets_where_one_begins_the_other_the_longer_is_masked_whole():
    assert masking(["secret", "secret-tail"])("secret-tail secret") == "*** ***"


def test_text_that_is_no_text_is_still_logged(tmp_path):
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no words")

    file = LogFile(tmp_path / "a.log", masking([]))
    for message, args in (
        ("half a character: \udc80", ()),
        ("too many %s", (1, 2)),
        ("broken %s", (Broken(),)),
    ):
        file.handle(logging.LogRecord("x", logging.INFO, "", 0, message, args, None))
    file.close()
    assert [r["message"] for r in lines(tmp_path / "a.log")] == [
        "half a character: \\udc80",
        "too many %s (its arguments do not fit: TypeError)",
        "broken %s (its arguments do not fit: RuntimeError)",
    ]


def test_strangers_are_heard_from_warning_on_and_everything_is_put_back(tmp_path):
    root = logging.getLogger()
    before = (root.level, list(root.handlers), logging.getLogger("alipes").level)
    with open_log(tmp_path / "a.log", "debug"):
        logging.getLogger("stranger").info("chatter")
        logging.getLogger("stranger").warning("trouble")
    assert (root.level, root.handlers, logging.getLogger("alipes").level) == before
    assert [r["message"] for r in lines(tmp_path / "a.log")] == ["trouble"]


def test_a_full_log_is_rotated_and_the_oldest_is_dropped(tmp_path):
    file = LogFile(tmp_path / "a.log", masking([]), largest=1000, kept=2)
    for number in range(60):
        file.handle(logging.LogRecord("x", logging.INFO, "", 0, f"{number:050}", None, None))
    file.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.log", "a.log.1", "a.log.2"]
    assert all(p.stat().st_size <= 1000 for p in tmp_path.iterdir())
    assert lines(tmp_path / "a.log")[-1]["message"] == f"{59:050}"


def test_two_processes_share_a_log_and_lose_no_line_to_rotation(tmp_path):
    script = (
        "import logging, sys, pathlib\n"
        "from alipes.runtime.logs import LogFile\n"
        "from alipes.runtime.masking import masking\n"
        "file = LogFile(pathlib.Path(sys.argv[1]), masking([]), largest=20_000, kept=50)\n"
        "for n in range(500):\n"
        "    file.handle(logging.LogRecord(sys.argv[2], 20, '', 0, f'{n}', None, None))\n"
    )
    path = tmp_path / "a.log"
    argv = [sys.executable, "-c", script, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    children = [subprocess.Popen([*argv, name], env=environment) for name in ("a", "b")]
    assert [child.wait(timeout=30) for child in children] == [0, 0]
    got = [(r["logger"], r["message"]) for p in tmp_path.iterdir() for r in lines(p)]
    assert len(got) == len(set(got)) == 1000


def test_a_log_that_was_deleted_is_begun_anew(tmp_path):
    with open_log(tmp_path / "a.log"):
        log.info("one")
        (tmp_path / "a.log").unlink()
        log.info("two")
    assert [r["message"] for r in lines(tmp_path / "a.log")] == ["two"]


def test_a_full_disk_neither_raises_nor_prints(capfd):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    file = LogFile(Path("/dev/full"), masking([]))
    file.handle(logging.LogRecord("x", logging.INFO, "", 0, "lost", None, None))
    file.close()
    assert capfd.readouterr() == ("", "")


def test_a_wrong_level_or_place_is_the_operators_to_mend(tmp_path):
    with (
        pytest.raises(ConfigError, match="debug, info, warning, error"),
        open_log(tmp_path / "a.log", "loud"),
    ):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"), open_log(tmp_path / "file" / "a.log"):
        pass
