"""The openai package, without asyncio, against an OpenAI endpoint: `URL KEY`. Prints what each feature gave."""

import json
import sys

from openai import OpenAI
from pydantic import BaseModel

NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
HELLO, TIME = ({"role": "user", "content": word} for word in ("hello", "time"))


class City(BaseModel):
    name: str


def main(url: str, key: str) -> None:
    client = OpenAI(base_url=url, api_key=key, max_retries=0)
    create = client.chat.completions.create
    found = {"chat": create(model="alipes", messages=[HELLO]).choices[0].message.content}
    stream = create(model="alipes", messages=[HELLO], stream=True)
    found["stream"] = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    called = create(model="alipes", messages=[TIME], tools=[NOW]).choices[0].message
    result = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "noon"}
    found["tools"] = create(model="alipes", messages=[TIME, called, result], tools=[NOW]).choices[0].message.content
    found["responses"] = client.responses.create(model="alipes", input="hello").output_text
    city = client.responses.parse(model="alipes", input="city", text_format=City)
    found["data"] = city.output_parsed.name
    print(json.dumps(found))


main(*sys.argv[1:])
