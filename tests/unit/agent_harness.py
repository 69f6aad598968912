"""A stage for the loop: scripted models by name, tools that remember, a clock that only jumps."""

import asyncio
from collections.abc import Iterable
from typing import Any

from alipes import testing as kit
from alipes.agent.loop import Agent, run_turn
from alipes.agent.model_call import RetryPolicy
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Message, Part, ToolCall
from alipes.kernel.models import ModelFacts
from alipes.kernel.ports import Provider, ToolOutput, ToolSpec
from alipes.kernel.turns import Address, Event, Inbound, ModelReply, Said, Turn, Usage
from alipes.providers.registry import Backend
from alipes.testing.scripted_provider import Line, ScriptedProvider


def play(*lines: Line) -> ScriptedProvider:
    return ScriptedProvider(lines)


def replied(*parts: Part, stop: str = "end", **usage: Any) -> ModelReply:
    return ModelReply(Message("assistant", parts), Usage(**usage) if usage else Usage(10, 2), stop)


class Troupe:
    """Models by name; `a_x` plays `a/x`."""

    def __init__(self, facts: ModelFacts | None = None, **plays: Provider) -> None:
        self._plays = {name.replace("_", "/"): play for name, play in plays.items()}
        self._facts = facts or ModelFacts()

    async def open(self, name: str) -> Backend:
        if name not in self._plays:
            raise ConfigError(f"there is no model {name}")
        return Backend(name=name, model=name.split("/")[1], provider=self._plays[name], facts=self._facts)


class Clock(kit.Clock):
    """Time does not advance until somebody sleeps; then it jumps."""

    def __init__(self) -> None:
        super().__init__(jumps=True)


class Hand:
    """A tool that does what it was scripted to do and remembers with what it was called."""

    def __init__(self, name: str, effect: str = "write", *, does: Any = "done", schema: Any = None) -> None:
        self.spec = ToolSpec(name, "a tool", schema or {"type": "object", "properties": {}}, effect)
        self.does, self.ran = does, []

    async def run(self, args: dict[str, Any], act: Any) -> str | ToolOutput:
        self.ran.append(dict(args))
        given = self.does(args, act) if callable(self.does) else self.does
        if asyncio.iscoroutine(given):
            given = await given
        if isinstance(given, BaseException):
            raise given
        return given


class Scene:
    """What a turn reported, and how it ended."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ending = self.detail = ""

    async def emit(self, event: Event) -> None:
        self.events.append(event)

    def of(self, *kinds: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]

    @property
    def said(self) -> tuple[Message, ...]:
        return tuple(event.message for event in self.of(Said))


def turn(text: str = "hello", **more: Any) -> Turn:
    wanted = {name: more.pop(name) for name in ("model", "workdir", "attachments", "offered") if name in more}
    return Turn("t1", "s1", Inbound("1", Address("test", "me"), "me", text, **wanted), **more)


def call(id: str, name: str, **args: Any) -> ToolCall:
    return ToolCall(id, name, args)


def an_agent(model: Provider, tools: Iterable[Any] = (), **more: Any) -> Agent:
    clock = more.pop("clock", None) or Clock()
    retry = more.pop("retry", None) or RetryPolicy(clock=clock, sleep=clock.sleep, random=lambda: 0.5)
    models = more.pop("models", None) or Troupe(a_x=model, facts=more.pop("facts", None))
    hands = {tool.spec.name: tool for tool in tools}
    return Agent(models=models, model="a/x", tools=hands, retry=retry, **more)


async def live(agent: Agent, lived: Turn | None = None) -> Scene:
    scene = Scene()
    scene.ending, scene.detail = await run_turn(agent, lived or turn(), scene.emit)
    return scene
