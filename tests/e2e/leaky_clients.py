"""Leaves network clients behind on closed event loops; run by test programs beside a prompt."""

import asyncio
import gc
import importlib


async def leave_behind(kind: str, url: str, *, pauses: int, pause: float) -> None:
    """Create a client in another thread and drop it; it is garbage-collected here, after its loop was closed."""
    kept = await asyncio.to_thread(_leak, kind, url)
    kept.clear()
    for _ in range(pauses):
        gc.collect()
        await asyncio.sleep(pause)


def _leak(kind: str, url: str) -> list[object]:
    """Create the client on its own loop, which is closed before the client."""
    loop = asyncio.new_event_loop()
    try:
        return [loop.run_until_complete(_use(kind, url))]
    finally:
        loop.close()


async def _use(kind: str, url: str) -> object:
    """A client as careless code creates it, with a keep-alive connection."""
    module = importlib.import_module(kind)
    if kind in ("httpx", "httpx2"):
        client = module.AsyncClient()
        await client.get(f"{url}/v1/models")
        return client
    name, base_url = {"openai": ("AsyncOpenAI", f"{url}/v1"), "anthropic": ("AsyncAnthropic", url)}[kind]
    client = getattr(module, name)(api_key="sk-test", base_url=base_url)
    await client.models.list()
    return client
