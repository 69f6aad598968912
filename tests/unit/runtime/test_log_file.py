"""The log file: lines, ids, masks, rotation, several writers, a disk that stalls."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from alipes.kernel.errors import ConfigError
from alipes.runtime.log_file import LogFile, log_context, open_log
from alipes.runtime.redaction import make_mask

log = logging.getLogger("alipes.test")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")}


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
        with log_context(session=session, turn="t"):
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
        with log_context(session=secret):
            log.info("key %s in %r and https://host/?key=%s", secret, {"key": odd}, "p%2Bss%2F%22w%C3%B6rd%5C")
            log.info("as json %s", json.dumps(odd, ensure_ascii=False))
        logging.getLogger(f"alipes.{secret}").warning("odd name")
        try:
            raise ValueError(f"reported {secret}")
        except ValueError:
            log.exception("it failed")
        assert mask(f"<{secret}>") == "<***>"
    text = (tmp_path / "a.log").read_text()
    for canary in ("abc123", "wörd", "p+ss", "p%2Bss"):
        assert canary not in text
    assert "ValueError: reported ***" in lines(tmp_path / "a.log")[-1]["trace"]


def test_of_two_secrets_where_one_begins_the_other_the_longer_is_masked_whole():
    assert make_mask(["secret", "secret-tail"])("secret-tail secret") == "*** ***"


def test_text_that_is_no_text_is_still_logged(tmp_path):
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no words")

    file = LogFile(tmp_path / "a.log", make_mask([]))
    for message, args in (("half a character: \udc80", ()), ("too many %s", (1, 2)), ("broken %s", (Broken(),))):
        file.handle(logging.LogRecord("x", logging.INFO, "", 0, message, args, None))
    file.close()
    assert [r["message"] for r in lines(tmp_path / "a.log")] == [
        "half a character: \\udc80",
        "too many %s (arguments do not match: TypeError)",
        "broken %s (arguments do not match: RuntimeError)",
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
    file = LogFile(tmp_path / "a.log", make_mask([]), largest=1000, kept=2)
    for number in range(60):
        file.handle(logging.LogRecord("x", logging.INFO, "", 0, f"{number:050}", None, None))
    file.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.log", "a.log.1", "a.log.2"]
    assert all(p.stat().st_size <= 1000 for p in tmp_path.iterdir())
    assert lines(tmp_path / "a.log")[-1]["message"] == f"{59:050}"


def test_two_processes_share_a_log_and_lose_no_line_to_rotation(tmp_path):
    script = (
        "import logging, sys, pathlib\n"
        "from alipes.runtime.log_file import LogFile\n"
        "from alipes.runtime.redaction import make_mask\n"
        "file = LogFile(pathlib.Path(sys.argv[1]), make_mask([]), largest=20_000, kept=50)\n"
        "for n in range(500):\n"
        "    file.handle(logging.LogRecord(sys.argv[2], 20, '', 0, f'{n}', None, None))\n"
    )
    path = tmp_path / "a.log"
    argv = [sys.executable, "-c", script, str(path)]
    children = [subprocess.Popen([*argv, name], env=ENVIRONMENT) for name in ("a", "b")]
    assert [child.wait(timeout=30) for child in children] == [0, 0]
    got = [(r["logger"], r["message"]) for p in tmp_path.iterdir() for r in lines(p)]
    assert len(got) == len(set(got)) == 1000


def test_a_log_that_was_deleted_is_started_again(tmp_path):
    with open_log(tmp_path / "a.log"):
        log.info("one")
        while not (tmp_path / "a.log").stat().st_size:
            time.sleep(0.01)
        (tmp_path / "a.log").unlink()
        log.info("two")
    assert [r["message"] for r in lines(tmp_path / "a.log")] == ["two"]


def test_a_full_disk_neither_raises_nor_prints(capfd):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    file = LogFile(Path("/dev/full"), make_mask([]))
    file.handle(logging.LogRecord("x", logging.INFO, "", 0, "lost", None, None))
    file.close()
    assert capfd.readouterr() == ("", "")


def test_a_wrong_level_or_place_is_the_operators_to_mend(tmp_path):
    with pytest.raises(ConfigError, match="debug, info, warning, error"), open_log(tmp_path / "a.log", "loud"):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"), open_log(tmp_path / "file" / "a.log"):
        pass


class Stalled:
    """A disk that takes some kilobytes and then nothing, until someone reads what it took."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path, self._end = path, os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def read(self) -> list[dict[str, str]]:
        """Everything until the last writer closes."""
        os.set_blocking(self._end, True)
        with open(self._end, closefd=False) as file:
            return [json.loads(line) for line in file]

    def close(self) -> None:
        os.close(self._end)


@pytest.fixture
def stalled(tmp_path) -> Iterator[Stalled]:
    disk = Stalled(tmp_path / "a.log")
    yield disk
    disk.close()


async def test_a_disk_that_stalls_holds_nobody_up_and_gets_every_line_in_order(stalled):
    with ThreadPoolExecutor(1) as pool:
        with open_log(stalled.path):
            for number in range(5000):
                log.info("%d %s", number, "-" * 50)
                if number % 100 == 0:
                    await asyncio.sleep(0)
            reading = pool.submit(stalled.read)  # only now
        written = [each["message"] for each in reading.result()]
    numbers = [
        message.split()[0] for message in written if message.endswith("-" * 50)
    ]  # a busy loop logs its own lines
    assert numbers == [str(number) for number in range(5000)]


def test_what_a_stalled_disk_leaves_no_room_for_is_counted_and_warnings_go_first(stalled):
    file = LogFile(stalled.path, make_mask([]), most=200_000)
    with ThreadPoolExecutor(1) as pool:
        for number in range(8000):
            file.handle(logging.LogRecord("x", logging.INFO, "", 0, f"{number}", None, None))
        for number in range(100):
            file.handle(logging.LogRecord("x", logging.WARNING, "", 0, f"{number}", None, None))
        reading = pool.submit(stalled.read)
        file.close()
        written = reading.result()
    assert [each["message"] for each in written if each["level"] == "warning" and each["logger"] == "x"] == [
        f"{number}" for number in range(100)
    ]
    kept = [int(each["message"]) for each in written if each["level"] == "info"]
    seen = [each["message"] for each in written if each["logger"] != "x"]
    assert kept == sorted(kept)
    missing = sum(int(each.split()[5]) for each in seen)
    assert len(kept) + missing == 8000 and missing > 2000


def test_a_disk_that_never_answers_keeps_nobody_from_leaving(stalled, monkeypatch):
    monkeypatch.setattr("alipes.runtime.log_file.CLOSE_TIMEOUT_S", 0.1)
    with open_log(stalled.path):
        for _ in range(1000):
            log.info("-" * 500)
    (thread,) = (each for each in threading.enumerate() if each.name == "log")
    assert thread.daemon
    assert len(stalled.read()) == 1000
    thread.join(10)


def test_no_thread_is_begun_before_the_first_record(tmp_path):
    before = threading.active_count()
    with open_log(tmp_path / "a.log"):
        log.debug("too fine")
        assert threading.active_count() == before
        log.info("hello")
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


ENDS = {
    "sys.exit": ("sys.exit(3)", 3),
    "an error": ("raise ValueError('nobody catches it')", 1),
    "nobody closes it": ("logging.getLogger().addHandler(LogFile(path.with_suffix('.2'), str)); say('2')", 0),
    "forked off": ("child = os.fork(); say(f'{child > 0}'); child or os._exit(0); os.waitpid(child, 0)", 0),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_was_logged_is_there_however_the_process_ends(tmp_path, end):
    how, status = ENDS[end]
    script = (
        "import logging, os, pathlib, sys\n"
        "from alipes.runtime.log_file import LogFile, open_log\n"
        "say, path = logging.getLogger('alipes.test').info, pathlib.Path(sys.argv[1])\n"
        "with open_log(path):\n"
        "    for n in range(1000):\n"
        "        say(f'{n}')\n"
        f"    {how}\n"
    )
    path = tmp_path / "a.log"
    argv = [sys.executable, "-c", script, str(path)]
    ended = subprocess.run(argv, env=ENVIRONMENT, timeout=30, check=False, stderr=subprocess.DEVNULL)
    assert ended.returncode == status
    got = [each["message"] for each in lines(path)]
    assert [each for each in got if each.isdigit()][:1000] == [f"{number}" for number in range(1000)]
    if end == "forked off":
        assert sorted(got)[-2:] == ["False", "True"] and len(got) == 1002
    if end == "nobody closes it":
        assert [each["message"] for each in lines(path.with_suffix(".2"))] == ["2"]
