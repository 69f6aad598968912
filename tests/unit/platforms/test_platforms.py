"""Shared code of the messengers: connection retries, unanswered calls, files and state files."""

import sys

import pytest
from msgspec import Struct

from alipes.kernel.errors import ConfigError, DeliveryError, Undeliverable
from alipes.kernel.outbox import Media
from alipes.platforms import state_files
from alipes.platforms.connection import ConnectionRetry, no_answer_error, optional_library
from alipes.platforms.files import FileTooLarge, media_kind, read_outgoing, save_file, save_stream


async def test_failures_are_reported_each_time_and_logged_once(caplog):
    states, counts = [], []

    def judge(theirs, count):
        counts.append(count)
        return DeliveryError(str(theirs), retry_after=0.0)

    trouble = ConnectionRetry("Somewhere", lambda *seen: states.append(seen), judge)
    with caplog.at_level("INFO"):
        for _ in range(2):
            for _ in range(3):
                await trouble.wait(OSError("no way"))
            trouble.succeeded()
    assert counts == [1, 2, 3, 1, 2, 3]
    assert states == [*[("broken", "no way")] * 3, ("ready", "")] * 2
    said = [record.getMessage() for record in caplog.records if record.name == "alipes.platforms.connection"]
    assert said == ["receiving from Somewhere: no way", "Somewhere is reachable again"] * 2


async def test_a_permanent_failure_is_raised():
    def judge(_theirs, _count):
        raise ConfigError("fix it")

    with pytest.raises(ConfigError, match="fix it"):
        await ConnectionRetry("Somewhere", lambda *_: None, judge).wait(OSError())


@pytest.mark.parametrize(
    ("sent", "late", "says"),
    [
        (False, True, "The server cannot be reached (sending: why)."),
        (True, True, "The server did not answer in time (sending)."),
        (True, False, "The connection to the server broke while sending (why)."),
    ],
)
def test_only_a_sent_request_is_uncertain(sent, late, says):
    error = no_answer_error("the server", "sending", "why", sent=sent, late=late)
    assert str(error) == says and error.uncertain == sent


def test_a_missing_library_is_a_config_error():
    with (
        pytest.raises(ConfigError, match=r"Chat needs chatlib \(.*\). Mail needs .*: run `alipes install email`."),
        optional_library("Chat", "chatlib", "email"),
    ):
        raise ModuleNotFoundError("No module named 'chatlib'")


class Mark(Struct):
    at: int = 0


def test_state_files_are_atomic_and_private_and_damaged_ones_are_empty(tmp_path):
    path = tmp_path / "folder" / "mark.json"
    assert state_files.read_state(path, Mark).at == 0
    state_files.write_atomic(path, b'{"at":7}')
    state_files.write_atomic(path, b'{"at":8}')
    assert state_files.read_state(path, Mark).at == 8 and list(path.parent.iterdir()) == [path]
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o077 == 0 == path.parent.stat().st_mode & 0o077
    path.write_bytes(b"{")
    assert state_files.read_state(path, Mark).at == 0


def test_a_bounded_dict_keeps_the_latest():
    table = {}
    for key in ("a", "b", "a", "c"):
        state_files.put_bounded(table, key, None, 2)
    assert list(table) == ["a", "c"]


async def test_a_too_large_or_interrupted_file_leaves_nothing(tmp_path):
    async def chunks(*parts):
        for part in parts:
            if isinstance(part, Exception):
                raise part
            yield part

    with pytest.raises(FileTooLarge):
        await save_stream(tmp_path / "large", chunks(b"four", b"more"), 7)
    with pytest.raises(ConnectionError):
        await save_stream(tmp_path / "broken", chunks(b"four", ConnectionError()), 7)
    assert not list(tmp_path.iterdir())
    assert await save_stream(tmp_path / "whole", chunks(b"four", b"bye"), 7) == 7
    assert read_outgoing(Media(str(tmp_path / "whole"))) == b"fourbye"


def test_a_missing_file_is_undeliverable(tmp_path):
    assert read_outgoing(Media(save_file(tmp_path / "new" / "there", b"data"))) == b"data"
    with pytest.raises(Undeliverable, match="cannot be read: No such file"):
        read_outgoing(Media(str(tmp_path / "nowhere")))


def test_the_media_kind_follows_the_mime_type():
    assert [media_kind(each) for each in ("image/png", "audio/ogg", "text/plain", "")] == [
        "image",
        "audio",
        "file",
        "file",
    ]
