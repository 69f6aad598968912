"""The raw limit of tool rounds: request, run the command in bash, send the result, request again."""

import asyncio
import sys

import httpx2
import msgspec


async def main(base_url: str) -> None:
    messages: list[dict[str, object]] = [{"role": "user", "content": "go"}]
    async with httpx2.AsyncClient(timeout=60) as client:
        while True:
            body = {"model": "m", "stream": True, "messages": messages}
            async with client.stream("POST", f"{base_url}/chat/completions", json=body) as response:
                data = b"".join([block async for block in response.aiter_bytes()])
            calls, text = {}, ""
            for line in data.split(b"\n"):
                if not line.startswith(b"data: {"):
                    continue
                for choice in msgspec.json.decode(line[6:])["choices"]:
                    text += choice["delta"].get("content") or ""
                    for piece in choice["delta"].get("tool_calls") or ():
                        call = calls.setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
                        call["id"] = piece.get("id") or call["id"]
                        call["name"] += piece["function"].get("name") or ""
                        call["arguments"] += piece["function"].get("arguments") or ""
            if not calls:
                sys.stdout.write(text)
                return
            wire = [
                {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
                for c in calls.values()
            ]
            messages.append({"role": "assistant", "content": text or None, "tool_calls": wire})
            for call in calls.values():
                command = msgspec.json.decode(call["arguments"])["command"]
                child = await asyncio.create_subprocess_exec(
                    *("bash", "-c", command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
                )
                output, _ = await child.communicate()
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": output.decode()})


asyncio.run(main(sys.argv[1]))
