"""LangChain against an OpenAI endpoint: `URL KEY`. Prints what each feature gave, as one line of JSON."""

import asyncio
import json
import sys

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


@tool
def now(zone: str = "") -> str:
    """The time."""
    return "noon"


class City(BaseModel):
    name: str


async def main(url: str, key: str) -> None:
    model = ChatOpenAI(model="alipes", base_url=url, api_key=key, max_retries=0)
    responses = ChatOpenAI(model="alipes", base_url=url, api_key=key, max_retries=0, use_responses_api=True)
    found = {"chat": model.invoke("hello").content, "async": (await model.ainvoke("hello")).content}
    found["stream"] = "".join([chunk.content async for chunk in model.astream("hello")])
    called = model.bind_tools([now]).invoke("time")
    messages = [("user", "time"), called, now.invoke(called.tool_calls[0])]
    found["tools"] = model.bind_tools([now]).invoke(messages).content
    found["responses"] = responses.invoke("hello").text
    found["data"] = model.with_structured_output(City, method="json_schema").invoke("city").name
    print(json.dumps(found))


asyncio.run(main(*sys.argv[1:]))
