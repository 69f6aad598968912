"""Non-blocking output with slow and closed readers."""

import asyncio
import errno
import fcntl
import os

import pytest

from alipes.console.stdio import AsyncWriter


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    ends = {"read": reading, "write": writing}
    yield ends
    for fd in ends.values():
        os.close(fd)


async def test_text_written_together_is_sent_as_one_piece(pipe):
    outlet = AsyncWriter(pipe["write"])
    for word in ("one ", "two ", "drei é"):
        outlet.write(word)
    await asyncio.sleep(0)
    assert os.read(pipe["read"], 100).decode() == "one two drei é"
    await outlet.drain()


async def test_flush_now_writes_at_once(pipe):
    outlet = AsyncWriter(pipe["write"])
    outlet.write("now")
    outlet.flush_now()
    assert os.read(pipe["read"], 100) == b"now"


async def test_a_slow_reader_does_not_block_the_loop_and_gets_everything(pipe):
    fcntl.fcntl(pipe["write"], fcntl.F_SETPIPE_SZ, 4096)
    outlet = AsyncWriter(pipe["write"])
    text = b"0123456789" * 10_000
    outlet.write(text)
    await asyncio.sleep(0.01)  # the loop turns although the pipe is full
    got = b""

    async with asyncio.TaskGroup() as group:
        draining = group.create_task(outlet.drain())
        while len(got) < len(text):
            got += await asyncio.to_thread(os.read, pipe["read"], 1000)
    assert draining.done()
    assert got == text


async def test_a_closed_reader_is_noticed_and_later_text_is_dropped(pipe):
    outlet = AsyncWriter(pipe["write"])
    os.close(pipe.pop("read"))
    outlet.write("anyone?")
    await outlet.reader_gone.wait()
    outlet.write("no")
    await outlet.drain()


async def test_a_reader_that_closes_during_drain_is_noticed(pipe):
    outlet = AsyncWriter(pipe["write"])
    outlet.write(b"x" * 1_000_000)
    async with asyncio.TaskGroup() as group:
        group.create_task(outlet.drain())
        await asyncio.sleep(0.01)
        os.close(pipe.pop("read"))
    assert outlet.reader_gone.is_set()


async def test_a_regular_file_takes_everything(tmp_path):
    with (tmp_path / "out").open("wb") as file:
        outlet = AsyncWriter(file.fileno())
        outlet.write(b"x" * 100_000)
        await outlet.drain()
    assert (tmp_path / "out").stat().st_size == 100_000


async def test_a_full_disk_counts_as_a_reader_gone():
    with open("/dev/full", "wb", buffering=0) as full:
        outlet = AsyncWriter(full.fileno())
        outlet.write("x")
        await outlet.drain()
        assert outlet.reader_gone.is_set() and outlet.failure.errno == errno.ENOSPC


async def test_without_a_descriptor_nothing_is_written():
    outlet = AsyncWriter(None)
    outlet.write("x")
    await outlet.drain()
    outlet.close()


async def test_close_drops_pending_text_and_leaves_the_descriptor_open(pipe):
    outlet = AsyncWriter(pipe["write"])
    outlet.write(b"x" * 1_000_000)
    outlet.flush_now()
    outlet.close()
    os.fstat(pipe["write"])
