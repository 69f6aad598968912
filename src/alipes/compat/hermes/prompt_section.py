"""A plugin's section of the system prompt."""

import re
from collections.abc import Callable

from msgspec import structs

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.call import PluginCallback
from alipes.compat.hermes.hook_arguments import model_of, platform_of
from alipes.compat.hermes.hooks import DECISION_TIMEOUT_S
from alipes.compat.hermes.state import RecentMap
from alipes.kernel.ports import Request
from alipes.kernel.turns import Turn
from alipes.plugins.context import Context

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")


class PromptSection:
    """Rendered once per conversation, so that the prompt stays the same and providers can cache it."""

    def __init__(
        self, bridge: Bridge, context: Context, id: str, content: str | Callable[..., str], *, max_chars: int
    ) -> None:
        if not _ID.fullmatch(id):
            raise ValueError(f"not a section id: {id!r}; use lower-case letters, digits, '.', '_' and '-'")
        if not isinstance(content, str) and not callable(content):
            raise TypeError("content must be a text or a function that returns one")
        self._bridge, self._context, self.id, self._max_chars = bridge, context, id, max_chars
        self._content = content if isinstance(content, str) else PluginCallback(content)
        self._texts: RecentMap[str, str] = RecentMap()

    def attach(self) -> None:
        """Call it on the loop's thread."""
        self._context.hook(self.before_request, deadline=DECISION_TIMEOUT_S)

    async def before_request(self, request: Request, turn: Turn) -> Request | None:
        text = self._texts.get(turn.session)
        if text is None:
            text = self._texts[turn.session] = (await self._render(turn))[: self._max_chars].strip()
        return structs.replace(request, system=f"{request.system}\n\n{text}".strip()) if text else None

    async def _render(self, turn: Turn) -> str:
        if isinstance(self._content, str):
            return self._content
        model = model_of(self._bridge, turn)
        facts = {
            "session_id": turn.session,
            "model": model,
            "provider": model.partition("/")[0],
            "platform": platform_of(turn),
            "profile_name": self._bridge.profile_name,
            "cwd": turn.inbound.workdir,
        }
        text = await self._bridge.run(self._content, facts)
        return text if isinstance(text, str) else ""
