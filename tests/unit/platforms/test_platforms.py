"""What messengers share: trouble told once, calls that nobody answered, files that are whole or not there."""

import sys

import pytest
from msgspec import Struct

from alipes.kernel.errors import ConfigError, DeliveryError, Gone
from alipes.platforms import state_files
from alipes.platforms.connection import Trouble, needed, unanswered
from alipes.platforms.files import TooLarge, content, kind_of, save, save_chunks


async def test_trouble_is_told_each_time_and_logged_once_until_it_is_over(caplog):
    states, counts = [], []

    def judge(theirs, count):
        counts.append(count)
        return DeliveryError(str(theirs), retry_after=0.0)

    trouble = Trouble("Somewhere", lambda *told: states.append(told), judge)
    with caplog.at_level("INFO"):
        for _ in range(2):
            for _ in range(3):
                await trouble.wait(OSError("no way"))
            trouble.over()
    assert counts == [1, 2, 3, 1, 2, 3]
    assert states == [*[("broken", "no way")] * 3, ("ready", "")] * 2
    said = [record.getMessage() for record in caplog.records if record.name == "alipes.platforms.connection"]
    assert said == ["listening to Somewhere: no way", "Somewhere answers again"] * 2


async def test_what_waiting_does_not_help_against_is_not_waited_out():
    def judge(_theirs, _count):
        raise ConfigError("mend it")

    with pytest.raises(ConfigError, match="mend it"):
        await Trouble("Somewhere", lambda *_: None, judge).wait(OSError())


@pytest.mark.parametrize(
    ("sent", "late", "says"),
    [
        (False, True, "The server cannot be reached (sending: why)."),
        (True, True, "The server did not answer in time (sending)."),
        (True, False, "The connection to the server broke while sending (why)."),
    ],
)
def test_only_what_was_sent_may_have_arrived(sent, late, says):
    error = unanswered("the server", "sending", "why", sent=sent, late=late)
    assert str(error) == says and error.uncertain == sent


def test_a_missing_library_is_named_with_what_to_install():
    with (
        pytest.raises(ConfigError, match=r"Chat needs chatlib \(.*\): pip install 'alipes\[chat\]'"),
        needed("Chat", "chatlib", "chat"),
    ):
        raise ModuleNotFoundError("No module named 'chatlib'")


class Mark(Struct):
    at: int = 0


def test_what_is_kept_is_whole_and_ours_alone_and_what_cannot_be_read_is_new(tmp_path):
    path = tmp_path / "folder" / "mark.json"
    assert state_files.read(path, Mark).at == 0
    state_files.write(path, b'{"at":7}')
    state_files.write(path, b'{"at":8}', ".last")
    assert state_files.read(path, Mark).at == 8 and list(path.parent.iterdir()) == [path]
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o077 == 0 == path.parent.stat().st_mode & 0o077
    path.write_bytes(b"{")
    assert state_files.read(path, Mark).at == 0


def test_a_table_keeps_what_was_put_last():
    table = {}
    for key in ("a", "b", "a", "c"):
        state_files.put(table, key, None, 2)
    assert list(table) == ["a", "c"]


async def test_a_file_that_is_too_large_or_breaks_off_leaves_nothing(tmp_path):
    async def chunks(*parts):
        for part in parts:
            if isinstance(part, Exception):
                raise part
            yield part

    with pytest.raises(TooLarge):
        await save_chunks(tmp_path / "large", chunks(b"four", b"more"), 7)
    with pytest.raises(ConnectionError):
        await save_chunks(tmp_path / "broken", chunks(b"four", ConnectionError()), 7)
    assert not list(tmp_path.iterdir())
    assert await save_chunks(tmp_path / "whole", chunks(b"four", b"bye"), 7) == 7
    assert content(str(tmp_path / "whole")) == b"fourbye"


def test_a_file_that_is_gone_is_not_waited_for(tmp_path):
    assert content(save(tmp_path / "new" / "there", b"data")) == b"data"
    with pytest.raises(Gone, match="cannot be read: No such file"):
        content(str(tmp_path / "nowhere"))


def test_a_file_is_of_its_own_kind_or_just_a_file():
    assert [kind_of(each) for each in ("image/png", "audio/ogg", "text/plain", "")] == [
        "image",
        "audio",
        "file",
        "file",
    ]
