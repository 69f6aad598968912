"""What a wrapping hook stands around. It is the house's doing, wherever the plugin calls it from."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from alipes.hooks.entries import Entry
from alipes.hooks.stepping import Watched
from alipes.hooks.tracking import PLUGIN, as_coroutine, on_behalf_of
from alipes.kernel.errors import PluginError


class Act:
    """`go`: done at most once, however often it is asked for. Who asks again is given the same."""

    def __init__(self, act: Callable[[Any], Awaitable[Any]], entry: Entry) -> None:
        self._act, self._entry = act, entry
        self._around = PLUGIN.get()
        self._begun = False
        self._over = asyncio.Event()
        self._error: BaseException | None = None
        self._given: Any = None

    async def __call__(self, value: object) -> Any:
        if not self._begun:
            self._begun = True
            with self, on_behalf_of(self._around):
                work = as_coroutine(self._act(value))
                self._given = await Watched(work, None, self._entry.watch)
        return await self._outcome()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._error = error
        self._over.set()

    def running(self) -> bool:
        return self._begun and not self._over.is_set()

    def accepts(self, answer: object, kind: type | tuple[type, ...]) -> bool:
        """May the wrapper answer this? What it was given it may pass on, whatever it is."""
        return isinstance(answer, kind) or (self._over.is_set() and answer is self._given)

    def raised(self, error: BaseException) -> bool:
        """Is the error not the wrapper's own, but what it stands around raised? Alone, or in a group."""
        own = self._error
        if own is None or isinstance(own, asyncio.CancelledError):
            return False
        if isinstance(error, BaseExceptionGroup):
            return error.split(lambda each: each is own)[1] is None
        return error is own

    async def instead(self, value: object) -> Any:
        """What counts after the wrapper broke: the act as if nobody stood around it."""
        return await (self._outcome() if self._begun else self(value))

    async def _outcome(self) -> Any:
        await self._over.wait()
        if isinstance(self._error, asyncio.CancelledError):
            why = "it cut short what it stands around, which is not done twice"
            raise PluginError(self._entry.owner.name, self._entry.name, why)
        if self._error is not None:
            raise self._error
        return self._given
