"""Pydantic AI against an OpenAI endpoint: `URL KEY`. Prints what each feature gave, as one line of JSON."""

import asyncio
import json
import sys

from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class City(BaseModel):
    name: str


def now() -> str:
    """The time."""
    return "noon"


async def main(url: str, key: str) -> None:
    provider = OpenAIProvider(openai_client=AsyncOpenAI(base_url=url, api_key=key, max_retries=0))
    chat, responses = OpenAIChatModel("alipes", provider=provider), OpenAIResponsesModel("alipes", provider=provider)
    agent, other = Agent(chat, tools=[now]), Agent(responses, tools=[now])
    found = {"chat": (await agent.run("hello")).output}
    async with agent.run_stream("hello") as streamed:
        found["stream"] = await streamed.get_output()
    found["tools"] = (await agent.run("time")).output
    found["responses"] = (await other.run("hello")).output
    found["responses tools"] = (await other.run("time")).output
    found["data"] = (await Agent(chat, output_type=NativeOutput(City)).run("city")).output.name
    print(json.dumps(found))


asyncio.run(main(*sys.argv[1:]))
