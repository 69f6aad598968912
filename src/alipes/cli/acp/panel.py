"""What an editor shows of a conversation besides its turns: choices, plan, title and use of the context window."""

from contextlib import suppress

from acp.interfaces import Client
from acp.schema import ConfigOptionUpdate, Cost, SessionInfoUpdate, UsageUpdate

from alipes.cli.acp.handshake import EditorFeatures
from alipes.cli.acp.options import EditorChoices
from alipes.cli.acp.updates import Update, plan_update, say
from alipes.core.app import App
from alipes.kernel.errors import ConfigError
from alipes.kernel.turns import Address


class EditorPanel:
    """Sends updates of one session. If the editor is gone, they are dropped."""

    def __init__(
        self, id: str, address: Address, *, app: App, client: Client, choices: EditorChoices, features: EditorFeatures
    ) -> None:
        self._id, self._address, self._app, self._client, self._choices = id, address, app, client, choices
        self._features, self._title = features, ""

    async def say(self, text: str) -> None:
        await self.send(say(text))

    async def refresh_options(self) -> None:
        """Send the choices, because one of them may have changed."""
        if not self._features.newer_updates:
            return
        options = await self._choices.options()
        await self.send(ConfigOptionUpdate(session_update="config_option_update", config_options=options))

    async def send_plan(self) -> None:
        standing = await self._app.store.sessions.active(self._address.key)
        if standing is not None and (items := await self._app.todos.read(standing.session)):
            await self.send(plan_update(items))

    async def send_facts(self) -> None:
        """The title of the conversation, and how much of the context window it uses."""
        app = self._app
        if not self._features.newer_updates:
            return
        facts = await app.store.archive.current(self._address.key)
        if facts is None:
            return
        if facts.title and facts.title != self._title:
            self._title = facts.title
            await self.send(SessionInfoUpdate(session_update="session_info_update", title=facts.title))
        used = await app.store.archive.context_tokens(facts.id)
        window = None
        with suppress(ConfigError):  # the model may be gone; asking it reports that
            window = (await app.models.open(facts.model)).facts.window if facts.model else None
        if used and window:
            cost = facts.spent.usage.cost
            price = Cost(amount=cost, currency="USD") if cost and not facts.spent.unpriced else None
            await self.send(UsageUpdate(session_update="usage_update", used=used, size=window, cost=price))

    async def send(self, update: Update) -> None:
        with suppress(ConnectionError):  # the editor is gone: the conversation is closed soon
            await self._client.session_update(session_id=self._id, update=update)
