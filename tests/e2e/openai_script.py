"""One script for the official `openai` package. It runs against any server and returns what it received."""

from typing import Any

import openai
from openai import AsyncOpenAI

from tests.world.model_server import Call, Plan, Say

PLAN = Plan(
    (Say("Hello, you."),),
    by={
        "count": (Say("one two three", pieces=3),),
        "weather": (Call("weather", {"city": "Rome"}), Say("It is sunny in Rome.")),
    },
)
"""What the model answers to any client."""
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
TOOL: Any = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}


async def play(url: str, key: str, model: str) -> dict[str, object]:
    """The results of chat, stream, tools, responses and errors, without ids and times."""
    got: dict[str, object] = {}
    async with AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
        got["models"] = model in [each.id async for each in await client.models.list()]
        got["chat"] = await _chat(client, model)
        got["stream"] = await _stream(client, model)
        got["tools"] = await _tools(client, model)
        got["streamed tools"] = await _streamed_tools(client, model)
        got["response"] = await _response(client, model)
        got["streamed response"] = await _streamed_response(client, model)
        got["response tools"] = await _response_tools(client, model)
        got["errors"] = [await _trouble(client, model, case) for case in ("key", "route", "pairs", "empty")]
    return got


def _asked(text: str) -> Any:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]


async def _chat(client: AsyncOpenAI, model: str) -> object:
    answer = await client.chat.completions.create(model=model, messages=_asked("hello"), temperature=0.1)
    (choice,) = answer.choices
    assert answer.usage
    counted = (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens)
    return answer.object, choice.message.role, choice.message.content, choice.finish_reason, counted


async def _stream(client: AsyncOpenAI, model: str) -> object:
    text, finish, counted = "", [], 0
    stream = await client.chat.completions.create(
        model=model, messages=_asked("count"), stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        assert chunk.object == "chat.completion.chunk"
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish += [choice.finish_reason] if choice.finish_reason else []
        counted += chunk.usage.total_tokens if chunk.usage else 0
    return text, finish, counted


async def _tools(client: AsyncOpenAI, model: str) -> object:
    messages = _asked("weather?")
    first = await client.chat.completions.create(model=model, messages=messages, tools=[CHAT_TOOL])
    (choice,) = first.choices
    (call,) = choice.message.tool_calls or ()
    assert call.type == "function"
    messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    last = await client.chat.completions.create(model=model, messages=messages, tools=[CHAT_TOOL])
    called = (call.function.name, call.function.arguments, choice.finish_reason, choice.message.content)
    return called, last.choices[0].message.content, last.choices[0].finish_reason


async def _streamed_tools(client: AsyncOpenAI, model: str) -> object:
    async with client.chat.completions.stream(model=model, messages=_asked("weather?"), tools=[CHAT_TOOL]) as stream:
        answer = await stream.get_final_completion()
    (choice,) = answer.choices
    (call,) = choice.message.tool_calls or ()
    return call.function.name, call.function.arguments, choice.finish_reason


async def _response(client: AsyncOpenAI, model: str) -> object:
    answer = await client.responses.create(model=model, input="hello", instructions="Be brief.")
    assert answer.usage
    return answer.object, answer.status, answer.output_text, answer.usage.total_tokens, answer.error


async def _streamed_response(client: AsyncOpenAI, model: str) -> object:
    names: list[str] = []
    async with client.responses.stream(model=model, input="count") as stream:
        async for event in stream:
            names += [event.type] if event.type not in names else []
        answer = await stream.get_final_response()
    return names, answer.output_text, answer.status


async def _response_tools(client: AsyncOpenAI, model: str) -> object:
    items: Any = [{"role": "user", "content": "weather?"}]
    first = await client.responses.create(model=model, input=items, tools=[TOOL])
    (call,) = [item for item in first.output if item.type == "function_call"]
    items += [*first.output, {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    last = await client.responses.create(model=model, input=items, tools=[TOOL])
    return call.name, call.arguments, first.status, last.output_text


async def _trouble(client: AsyncOpenAI, model: str, case: str) -> object:
    stray: Any = [*_asked("hello"), {"role": "tool", "tool_call_id": "x", "content": "y"}]
    try:
        match case:
            case "key":
                await client.with_options(api_key="wrong").chat.completions.create(
                    model=model, messages=_asked("hello")
                )
            case "route":
                await client.get("/nowhere", cast_to=object)
            case "pairs":
                await client.chat.completions.create(model=model, messages=stray)
            case _:
                await client.chat.completions.create(model=model, messages=[])
    except openai.APIStatusError as error:
        return type(error).__name__, error.status_code
    return "no error"
