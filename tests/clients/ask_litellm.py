"""LiteLLM against an OpenAI endpoint: `URL KEY`. Prints what each feature gave, as one line of JSON."""

import asyncio
import json
import sys

import litellm

NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}


def ask(*messages: dict, **more: object) -> dict:
    return {"model": "openai/alipes", "messages": list(messages), "num_retries": 0, **more}


async def main(url: str, key: str) -> None:
    place = {"api_base": url, "api_key": key}
    hello, time = ({"role": "user", "content": word} for word in ("hello", "time"))
    found = {"chat": litellm.completion(**ask(hello), **place).choices[0].message.content}
    found["async"] = (await litellm.acompletion(**ask(hello), **place)).choices[0].message.content
    stream = litellm.completion(**ask(hello, stream=True), **place)
    found["stream"] = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    called = litellm.completion(**ask(time, tools=[NOW]), **place).choices[0].message
    result = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "noon"}
    answer = litellm.completion(**ask(time, called.model_dump(), result, tools=[NOW]), **place)
    found["tools"] = answer.choices[0].message.content
    response = litellm.responses(model="openai/alipes", input="hello", **place)
    found["responses"] = response.output[0].content[0].text
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
    city = litellm.completion(**ask({"role": "user", "content": "city"}, response_format=wanted), **place)
    found["data"] = json.loads(city.choices[0].message.content)["name"]
    print(json.dumps(found))


asyncio.run(main(*sys.argv[1:]))
