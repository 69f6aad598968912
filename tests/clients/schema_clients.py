"""Clients that ask for data: each shape answered well, after a correction, and never. Prints one line of JSON per case.

`python tests/clients/schema_clients.py FAMILY URL KEY`
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel
from schema_shapes import SHAPES

MODES = ("well", "corrected", "never")
Ask = Callable[[type[BaseModel], str], Awaitable[BaseModel | None]]


def openai_client(url: str, key: str) -> Any:
    import openai

    return openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0)


def chat(url: str, key: str) -> Ask:
    client = openai_client(url, key)

    async def ask(shape: type[BaseModel], text: str) -> BaseModel | None:
        messages = [{"role": "user", "content": text}]
        answer = await client.chat.completions.parse(model="alipes", messages=messages, response_format=shape)
        return answer.choices[0].message.parsed

    return ask


def stream(url: str, key: str) -> Ask:
    client = openai_client(url, key)

    async def ask(shape: type[BaseModel], text: str) -> BaseModel | None:
        messages = [{"role": "user", "content": text}]
        manager = client.chat.completions.stream(model="alipes", messages=messages, response_format=shape)
        async with manager as events:
            async for _ in events:
                pass
            return (await events.get_final_completion()).choices[0].message.parsed

    return ask


def responses(url: str, key: str) -> Ask:
    client = openai_client(url, key)

    async def ask(shape: type[BaseModel], text: str) -> BaseModel | None:
        answer = await client.responses.parse(model="alipes", input=text, text_format=shape)
        return answer.output_parsed

    return ask


def responses_stream(url: str, key: str) -> Ask:
    client = openai_client(url, key)

    async def ask(shape: type[BaseModel], text: str) -> BaseModel | None:
        async with client.responses.stream(model="alipes", input=text, text_format=shape) as events:
            async for _ in events:
                pass
            return (await events.get_final_response()).output_parsed

    return ask


def instructor(url: str, key: str) -> Ask:
    import instructor as library

    client = library.from_openai(openai_client(url, key), mode=library.Mode.JSON_SCHEMA)

    async def ask(shape: type[BaseModel], text: str) -> BaseModel | None:
        messages = [{"role": "user", "content": text}]
        return await client.chat.completions.create(
            model="alipes", messages=messages, response_model=shape, max_retries=0
        )

    return ask


def instructor_tools(url: str, key: str) -> Ask:
    import instructor as library

    client = library.from_openai(openai_client(url, key))

    async def ask(shape: type[BaseModel], text: str) -> BaseModel | None:
        messages = [{"role": "user", "content": text}]
        return await client.chat.completions.create(model="alipes", messages=messages, response_model=shape)

    return ask


def pydantic_ai(url: str, key: str, *, tools: bool = False) -> Ask:
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("alipes", provider=OpenAIProvider(openai_client=openai_client(url, key)))

    async def ask(shape: type[BaseModel], text: str) -> BaseModel | None:
        agent: Any = Agent(model, output_type=shape if tools else NativeOutput(shape))
        return (await agent.run(text)).output

    return ask


def pydantic_ai_tools(url: str, key: str) -> Ask:
    return pydantic_ai(url, key, tools=True)


FAMILIES: dict[str, Callable[[str, str], Ask]] = {
    "openai chat": chat,
    "openai chat stream": stream,
    "openai responses": responses,
    "openai responses stream": responses_stream,
    "instructor": instructor,
    "instructor tools": instructor_tools,
    "pydantic-ai": pydantic_ai,
    "pydantic-ai tools": pydantic_ai_tools,
}


async def main(family: str, url: str, key: str) -> None:
    ask = FAMILIES[family](url, key)
    for number, (shape, good, _) in enumerate(SHAPES):
        for mode in ("tool", "tool corrected") if family.endswith("tools") else MODES:
            if mode == "tool corrected" and accepts_bad(number):
                continue
            try:
                found = await ask(shape, f"{number} {mode}")
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
            else:
                same = found is not None and found.model_dump() == shape.model_validate(good).model_dump()
                outcome = "" if same else f"another value: {found!r}"
            print(json.dumps({"number": number, "mode": mode, "outcome": outcome}), flush=True)


def accepts_bad(number: int) -> bool:
    """Pydantic is laxer than some of its schemas."""
    shape, _, bad = SHAPES[number]
    try:
        shape.model_validate(bad)
    except ValueError:
        return False
    return True


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
