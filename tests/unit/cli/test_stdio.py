"""Text leaves in order and in few pieces, and a slow or vanished reader never holds the loop."""

import asyncio
import errno
import fcntl
import os

import pytest

from alipes.cli.stdio import Outlet


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    ends = {"read": reading, "write": writing}
    yield ends
    for fd in ends.values():
        os.close(fd)


async def test_what_is_written_together_leaves_as_one_piece(pipe):
    outlet = Outlet(pipe["write"])
    for word in ("one ", "two ", "drei é"):
        outlet.write(word)
    await asyncio.sleep(0)
    assert os.read(pipe["read"], 100).decode() == "one two drei é"
    await outlet.drained()


async def test_push_writes_at_once(pipe):
    outlet = Outlet(pipe["write"])
    outlet.write("now")
    outlet.push()
    assert os.read(pipe["read"], 100) == b"now"


async def test_a_slow_reader_does_not_hold_the_loop_and_gets_everything(pipe):
    fcntl.fcntl(pipe["write"], fcntl.F_SETPIPE_SZ, 4096)
    outlet = Outlet(pipe["write"])
    text = b"0123456789" * 10_000
    outlet.write(text)
    await asyncio.sleep(0.01)  # the loop turns although the pipe is full
    got = b""

    async with asyncio.TaskGroup() as group:
        draining = group.create_task(outlet.drained())
        while len(got) < len(text):
            got += await asyncio.to_thread(os.read, pipe["read"], 1000)
    assert draining.done()
    assert got == text


async def test_a_reader_that_went_away_is_noticed_and_later_text_is_dropped(pipe):
    outlet = Outlet(pipe["write"])
    os.close(pipe.pop("read"))
    outlet.write("anyone?")
    await outlet.deserted.wait()
    outlet.write("no")
    await outlet.drained()


async def test_a_reader_that_leaves_while_we_wait_for_it_is_noticed(pipe):
    outlet = Outlet(pipe["write"])
    outlet.write(b"x" * 1_000_000)
    async with asyncio.TaskGroup() as group:
        group.create_task(outlet.drained())
        await asyncio.sleep(0.01)
        os.close(pipe.pop("read"))
    assert outlet.deserted.is_set()


async def test_a_regular_file_takes_everything(tmp_path):
    with (tmp_path / "out").open("wb") as file:
        outlet = Outlet(file.fileno())
        outlet.write(b"x" * 100_000)
        await outlet.drained()
    assert (tmp_path / "out").stat().st_size == 100_000


async def test_a_full_disk_counts_as_a_reader_gone():
    with open("/dev/full", "wb", buffering=0) as full:
        outlet = Outlet(full.fileno())
        outlet.write("x")
        await outlet.drained()
        assert outlet.deserted.is_set() and outlet.failure.errno == errno.ENOSPC


async def test_without_a_descriptor_nothing_is_written():
    outlet = Outlet(None)
    outlet.write("x")
    await outlet.drained()
    outlet.close()


async def test_closing_drops_what_waits_and_leaves_the_descriptor_open(pipe):
    outlet = Outlet(pipe["write"])
    outlet.write(b"x" * 1_000_000)
    outlet.push()
    outlet.close()
    os.fstat(pipe["write"])
