"""Choices of a conversation in an editor: permission mode, model and reasoning effort."""

from collections.abc import Mapping

from acp import RequestError
from acp.schema import (
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
)

from alipes.core.app import App
from alipes.kernel.turns import EFFORT_LEVELS, Address, Effort
from alipes.sessions.permissions import MODES, parse_mode

MODE, MODEL, EFFORT = "mode", "model", "effort"
MODE_NAMES = {"ask": "Ask", "edits": "Accept edits", "plan": "Plan", "all": "Allow everything"}
DEFAULT = "default"
EFFORTS: dict[str, Effort] = {DEFAULT: "", **{each: each for each in EFFORT_LEVELS}}
ConfigOption = SessionConfigOptionSelect | SessionConfigOptionBoolean


class EditorChoices:
    """Reads and changes the choices of the conversation at one address."""

    def __init__(self, app: App, address: Address) -> None:
        self._app, self._address = app, address

    async def modes(self) -> SessionModeState:
        current = await self._app.sessions.permissions.of_key(self._address.key)
        available = [SessionMode(id=id, name=MODE_NAMES[id], description=about) for id, about in MODES.items()]
        return SessionModeState(current_mode_id=current, available_modes=available)

    async def options(self) -> list[ConfigOption]:
        """All choices with their current values."""
        app, key = self._app, self._address.key
        standing = await app.store.sessions.active(key)
        mode = await app.sessions.permissions.of_key(key)
        default = (await app.models.default()).model
        model = (standing.model if standing is not None else "") or default
        names = [name for name in dict.fromkeys((default, model, *app.models.names()))]
        effort = (standing.effort if standing is not None else "") or DEFAULT
        efforts = {value: value.capitalize() for value in EFFORTS}
        return [
            _select(MODE, "Permission mode", mode, MODE_NAMES),
            _select(MODEL, "Model", model, {name: name for name in names}),
            _select(EFFORT, "Thinking", effort, efforts),
        ]

    async def choose(self, option: str, value: str | bool) -> None:
        """Change one of them. Raises `RequestError` for an unknown value."""
        if option == MODE:
            await self.choose_mode(str(value))
        elif option == MODEL:
            await self._choose_model(str(value))
        elif option == EFFORT and str(value) in EFFORTS:
            standing = await self._app.store.sessions.open(self._address)
            await self._app.store.sessions.configure(standing.session, effort=EFFORTS[str(value)])
        else:
            raise _invalid(f"unknown option or value: {option} = {value}")

    async def choose_mode(self, name: str) -> None:
        mode = parse_mode(name)
        if mode is None:
            raise _invalid(f"unknown mode {name!r}; use one of {', '.join(MODES)}")
        await self._app.sessions.permissions.choose(self._address, mode)

    async def _choose_model(self, name: str) -> None:
        app = self._app
        default = (await app.models.default()).model
        chosen = "" if name == default else (await app.models.open(name)).name
        standing = await app.store.sessions.open(self._address)
        await app.store.sessions.configure(standing.session, model=chosen)


def _select(id: str, name: str, current: str, values: Mapping[str, str]) -> SessionConfigOptionSelect:
    category = {MODE: "mode", MODEL: "model", EFFORT: "thought_level"}[id]
    about = {str(mode): text for mode, text in MODES.items()} if id == MODE else {}
    options = [
        SessionConfigSelectOption(value=value, name=label, description=about.get(value))
        for value, label in values.items()
    ]
    return SessionConfigOptionSelect.model_validate(
        {"id": id, "name": name, "category": category, "type": "select", "current_value": current, "options": options}
    )


def _invalid(text: str) -> RequestError:
    return RequestError(-32602, text)
