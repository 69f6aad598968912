"""The Agents SDK against an OpenAI endpoint: `URL KEY`. Prints what each feature gave, as one line of JSON."""

import asyncio
import json
import sys

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from pydantic import BaseModel


@function_tool
def now() -> str:
    """The time."""
    return "noon"


class City(BaseModel):
    name: str


async def main(url: str, key: str) -> None:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=url, api_key=key, max_retries=0)
    chat = OpenAIChatCompletionsModel(model="alipes", openai_client=client)
    responses = OpenAIResponsesModel(model="alipes", openai_client=client)
    agent = Agent(name="a", instructions="Be brief.", model=chat, tools=[now])
    found = {"chat": (await Runner.run(agent, "hello")).final_output}
    running = Runner.run_streamed(agent, "hello")
    async for _ in running.stream_events():
        pass
    found["stream"] = running.final_output
    found["tools"] = (await Runner.run(agent, "time")).final_output
    other = Agent(name="b", model=responses, tools=[now])
    found["responses"] = (await Runner.run(other, "hello")).final_output
    found["responses tools"] = (await Runner.run(other, "time")).final_output
    data = Agent(name="c", model=chat, output_type=City)
    found["data"] = (await Runner.run(data, "city")).final_output.name
    print(json.dumps(found))


asyncio.run(main(*sys.argv[1:]))
