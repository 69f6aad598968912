"""Someone who leaves network clients behind on dead loops; for the programs that the tests run beside a prompt."""

import asyncio
import gc
import importlib


async def leave_behind(kind: str, url: str, *, pauses: int, pause: float) -> None:
    """Make a client in another thread and forget it; it is collected here, while its loop is closed already."""
    kept = await asyncio.to_thread(_leak, kind, url)
    kept.clear()
    for _ in range(pauses):
        gc.collect()
        await asyncio.sleep(pause)


def _leak(kind: str, url: str) -> list[object]:
    """The client is born on a loop of its own, which is closed before the client."""
    loop = asyncio.new_event_loop()
    try:
        return [loop.run_until_complete(_use(kind, url))]
    finally:
        loop.close()


async def _use(kind: str, url: str) -> object:
    """A client as careless code makes it, with a connection that is kept alive."""
    module = importlib.import_module(kind)
    if kind in ("httpx", "httpx2"):
        client = module.AsyncClient()
        await client.get(f"{url}/v1/models")
        return client
    name, base_url = {"openai": ("AsyncOpenAI", f"{url}/v1"), "anthropic": ("AsyncAnthropic", url)}[kind]
    client = getattr(module, name)(api_key="sk-test", base_url=base_url)
    await client.models.list()
    return client
