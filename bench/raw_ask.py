"""The raw limit of a one-shot: one streamed request with httpx2 and msgspec, printed as it comes."""

import asyncio
import sys

import httpx2
import msgspec


class Delta(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    delta: Delta


class Chunk(msgspec.Struct):
    choices: list[Choice]


async def main(base_url: str, prompt: str) -> None:
    decode = msgspec.json.Decoder(Chunk).decode
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": prompt}]}
    async with (
        httpx2.AsyncClient(timeout=60) as client,
        client.stream("POST", f"{base_url}/chat/completions", json=body) as response,
    ):
        rest = b""
        async for block in response.aiter_bytes():
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    for choice in decode(line[6:]).choices:
                        sys.stdout.write(choice.delta.content or "")
    sys.stdout.flush()


asyncio.run(main(*sys.argv[1:3]))
