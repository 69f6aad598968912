"""Who may come in over HTTP: the names of the door from the settings, and `alipes serve key`."""

from urllib.parse import urlsplit

from alipes.config.settings import Settings
from alipes.store.callers import SqliteCallers
from alipes.web.door import Doorway
from alipes.web.endpoints import Caller
from alipes.web.keys import Find, Known


def doorway(settings: Settings) -> Doorway:
    """Under which names the door is called; where Telegram brings its messages is one of them."""
    telegram = settings.messengers.telegram
    brought = urlsplit(telegram.webhook_url).hostname if telegram.mode == "webhook" else None
    hosts = frozenset({*settings.api.hosts, *((brought,) if brought else ())})
    return Doorway(settings.serve.host, hosts, frozenset(settings.api.origins))


def named(callers: SqliteCallers) -> Find:
    """Looks a named key up in the store."""

    async def find(hash: bytes) -> Known | None:
        key = await callers.find(hash)
        return None if key is None else Known(Caller(key.name, frozenset({key.scope})), key.rate)

    return find
