"""The processes that convert documents: started on demand, killed on a stop or when a document takes too long."""

import asyncio
import os
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from alipes.features.web_search.converter import MAX_WORKERS, ConvertJob, PageConverter
from alipes.kernel.errors import ToolError
from tests.world.web_site import ARTICLE

SLOW = b"<a href=x>" * 200_000
"""Takes several seconds."""


def children():
    """Running converters of this process."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                line = Path("/proc", name, "cmdline").read_bytes()
                parent = int(Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if b"convert_child.py" in line and parent == os.getpid():
                found.append(int(name))
    return found


@asynccontextmanager
async def open_converter(**more):
    async with PageConverter(dict(os.environ), **more) as converter:
        yield converter
    assert children() == []


def html(data=None):
    return ConvertJob("html", ARTICLE.encode() if data is None else data, url="https://x.example/")


async def until(fact):
    while not fact():
        await asyncio.sleep(0.01)


async def test_one_process_converts_one_document_after_another():
    async with open_converter() as converter:
        assert children() == []
        for _ in range(3):
            made = await converter.convert(html())
            assert made.title == "Larks of Vienna" and "The lark sings" in made.text
        assert len(children()) == 1


async def test_documents_are_converted_in_parallel_by_few_processes():
    async with open_converter() as converter, asyncio.TaskGroup() as group:
        tasks = [group.create_task(converter.convert(html())) for _ in range(6)]
        assert {(await task).title for task in tasks} == {"Larks of Vienna"}
        assert len(children()) <= MAX_WORKERS


async def test_a_document_that_takes_too_long_is_given_up_and_its_process_killed():
    async with open_converter(timeout_s=0.6) as converter:
        converter.prepare()
        with pytest.raises(ToolError, match="took longer than"):
            await converter.convert(html(SLOW))
        assert children() == []
    async with open_converter() as converter:
        assert (await converter.convert(html())).title


async def test_a_stop_kills_the_process_at_once():
    async with open_converter() as converter:
        task = asyncio.create_task(converter.convert(html(SLOW)))
        await until(children)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert children() == []
        assert (await converter.convert(html())).title


async def test_a_process_without_work_ends_after_a_while():
    async with open_converter(idle_s=0.05) as converter:
        assert (await converter.convert(html())).title
        await until(lambda: not children())
        assert (await converter.convert(html())).title


async def test_a_process_that_was_killed_is_replaced():
    async with open_converter() as converter:
        await converter.convert(html())
        (pid,) = children()
        os.kill(pid, 9)
        await until(lambda: pid not in children())
        await asyncio.sleep(0)
        await until(lambda: not any(worker.usable for worker in converter._idle))
        assert (await converter.convert(html())).title


async def test_a_prepared_process_is_used():
    async with open_converter() as converter:
        converter.prepare()
        converter.prepare()
        await until(children)
        assert (await converter.convert(html())).title and len(children()) == 1


async def test_a_page_is_converted_only_if_the_packages_are_there():
    async def refuse(name):
        raise ToolError(f"{name} is not installed")

    async with open_converter(require=refuse) as converter:
        with pytest.raises(ToolError, match="web is not installed"):
            await converter.convert(ConvertJob("html", b"<p>Hello"))
        assert (await converter.convert(ConvertJob("text", b"Hello"))).text == "Hello"
