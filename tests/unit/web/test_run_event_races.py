"""Listeners that come and go at any moment, read slowly, or not at all: each hears all of it, once."""

import asyncio
import random
import socket
from pathlib import Path

import pytest

from alipes.kernel.messages import Part
from alipes.testing.scripted_provider import Pause, ScriptedProvider
from tests.unit.agent_harness import Hand, call, play
from tests.world.api_harness import ApiHarness, StreamEvent, open_api


class View:
    """What a page would show: messages, and the pieces of the one that is being written."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.writing = ""
        self.last = ""
        self.over = False

    def show(self, heard: StreamEvent) -> None:
        self.last = heard.id
        match heard.name:
            case "text_delta":
                self.writing += heard.text
            case "said":
                role, whole = heard.data["message"]["role"], heard.text
                if role == "assistant" and self.writing:
                    assert whole.startswith(self.writing), (whole, self.writing)
                self.said.append(f"{role}: {whole}")
                self.writing = ""
            case "retracted" | "turn_started":
                self.writing = ""
            case "turn_ended":
                self.over = True


def long_talk(steps: int) -> ScriptedProvider:
    lines: list[tuple[object, ...] | str] = []
    for step in range(steps):
        words = tuple(part for n in range(6) for part in (f"word {step}.{n} ", Pause(0.001)))
        act: Part = call(f"c{step}", "hand", x=step)
        lines.append((*words, act))
    return play(*lines, "That is all.")  # type: ignore[arg-type]


async def watch(api: ApiHarness, run: str, dice: random.Random) -> View:
    """Listen in bits, each of some events, to the end."""
    view = View()
    while not view.over:
        async with api.listening(run, view.last) as listener:
            for _ in range(dice.randrange(1, 9)):
                try:
                    view.show(await anext(listener))
                except StopAsyncIteration:
                    break
    return view


@pytest.mark.deadline(30)
async def test_listeners_that_come_and_go_all_see_the_same_talk(tmp_path: Path):
    dice = random.Random(3)
    async with open_api(tmp_path, long_talk(5), Hand("hand")) as api:
        run = await api.begin("go")
        async with asyncio.TaskGroup() as group:
            watching = [group.create_task(watch(api, run, random.Random(dice.random()))) for _ in range(8)]
        messages = await api.house.store.archive.messages((await api.look(run))["session_id"])
    expected = [f"{each.role}: {''.join(getattr(part, 'text', '') for part in each.parts)}" for each in messages]
    assert len(expected) == 12
    for each in watching:
        assert each.result().said == expected


async def test_nothing_is_kept_of_runs_that_are_over(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        for number in range(9):
            await api.finish(await api.begin("hi", session=f"s{number % 3}"))
        await api.house.sessions.wait_idle()
        while any(api.house.store.bus._local.values()):
            await asyncio.sleep(0)
        assert not api.runs._live and not api.runs._joining


async def test_one_who_does_not_read_holds_nobody_up(tmp_path: Path):
    tool = Hand("hand", "read", does="x" * 400_000)
    talk = play(*(call(f"c{n}", "hand", x=n) for n in range(12)), "Done.")
    async with open_api(tmp_path, talk, tool) as api:
        host, port = api.client.base_url.host, api.client.base_url.port
        run = await api.begin("go")
        with socket.socket() as idle:
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(idle, (host, port))
            asked = f"GET /v1/runs/{run}/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key-ann-0123456789abcdef\r\n\r\n"
            await loop.sock_sendall(idle, asked.encode())
            assert (await api.finish(run))["text"] == "Done."
