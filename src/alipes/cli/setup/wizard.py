"""The guided start, question by question. It plans and tries out; it writes nothing."""

from typing import Literal, TypeAlias

from msgspec import structs

from alipes.cli.setup.check import Kind, Trouble, ask_somewhere, list_somewhere
from alipes.cli.setup.choices import (
    ANOTHER,
    APIS,
    KEYS_AT,
    MODEL_HINT,
    find_local,
    model_options,
    preferred,
    providers,
)
from alipes.cli.setup.plan import (
    Given,
    Plan,
    check_name,
    check_url,
    endpoint_of,
    model_of,
    name_for,
    usual,
    with_key,
)
from alipes.cli.setup.prompts import Dialogue, Option
from alipes.config.environment import Variables
from alipes.config.known_providers import BUILT_IN, KNOWN
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Endpoint
from alipes.runtime.http.clients import ClientScope

Step: TypeAlias = Literal["provider", "address", "key", "models", "model", "trial", "done"]
_WAYS: dict[Kind, tuple[Step, ...]] = {
    "key": ("key", "provider"),
    "credit": ("trial", "model", "key", "provider"),
    "unreachable": ("trial", "address", "provider"),
    "address": ("address", "model", "provider"),
    "model": ("model", "trial", "provider"),
    "other": ("provider", "model", "trial"),
}
"""What may help, likeliest first; `trial` stands for the same once more."""
_LABELS: dict[Step, str] = {
    "trial": "try again",
    "key": "another key",
    "address": "another address",
    "model": "another model",
    "provider": "another provider",
}
_NOTHING = Plan(Endpoint("", "openai-chat"))
KEEP = Option("keep", "keep it anyway", "without having seen it work")


class Guide:
    """Goes from step to step until the plan works, or the person takes it as it is."""

    def __init__(
        self, settings: Settings, variables: Variables, scope: ClientScope, dialogue: Dialogue, given: Given
    ) -> None:
        self._settings, self._variables, self._scope = settings, variables, scope
        self._dialogue, self._given = dialogue, given
        self._check = given.check
        self._plan = _NOTHING
        self._offered: tuple[str, ...] = ()

    async def plan(self) -> Plan:
        """Ask what was not given. Raises Left when the person leaves, ConfigError for a wrong flag."""
        step: Step = "provider"
        while step != "done":
            match step:
                case "provider":
                    step = await self._provider()
                case "address":
                    step = await self._address()
                case "key":
                    step = await self._key()
                case "models":
                    step = await self._models()
                case "model":
                    step = await self._model()
                case "trial":
                    step = await self._trial()
        return self._plan

    def _take(self, flag: str) -> str:
        """What was given for `flag`, the first time; later the person is asked."""
        value: str = getattr(self._given, flag)
        self._given = structs.replace(self._given, **{flag: ""})
        return value

    async def _provider(self) -> Step:
        name = self._take("provider")
        url, api = self._given.base_url, self._given.api
        self._plan = _NOTHING
        if not name and url:
            return "address"
        if not name:
            found = await find_local(self._settings, self._scope) if self._check else None
            options = providers(self._settings, self._variables, found)
            first = preferred(self._settings, found)
            name = await self._dialogue.choose("Provider", options, first=first)
        if name == ANOTHER:
            return "address"
        self._take("base_url"), self._take("api")
        self._plan = Plan(endpoint_of(self._settings, name, base_url=url, api=api))
        return "key"

    async def _address(self) -> Step:
        """The address, API and name of a server that is not among the known."""
        present = self._plan.endpoint
        url = await self._url(self._take("base_url"), present.base_url)
        api = self._take("api") or await self._dialogue.choose("API", APIS, first=present.api)
        name = present.name or await self._name(name_for(url))
        endpoint = endpoint_of(self._settings, name, base_url=url, api=api)
        if present.key:
            endpoint = structs.replace(endpoint, key=present.key, key_env=present.key_env)
        self._plan = structs.replace(self._plan, endpoint=endpoint)
        return "key"

    async def _url(self, given: str, first: str) -> str:
        if not given:
            self._dialogue.tell("· what comes before /chat/completions, as in http://127.0.0.1:9100/v1")
        while True:
            url = given or await self._dialogue.text("Address", first)
            try:
                return check_url(url)
            except ConfigError as error:
                self._dialogue.warn(str(error))
                given, first = "", url

    async def _name(self, first: str) -> str:
        while True:
            name = await self._dialogue.text("A name for it", first)
            try:
                if check_name(name) not in KNOWN:
                    return name
                self._dialogue.warn(f"{name} is somebody else: choose another name.")
            except ConfigError as error:
                self._dialogue.warn(str(error))

    async def _key(self) -> Step:
        endpoint, given = self._plan.endpoint, Given(key=self._take("key"), key_env=self._take("key_env"))
        known = endpoint.name in KNOWN
        if given == Given():
            if known and not endpoint.key_env:
                return "models"
            given = Given(key=await self._ask_key(endpoint))
        try:
            self._plan = with_key(self._plan, self._variables, given)
        except ConfigError as error:
            self._dialogue.warn(str(error))
            return "key"
        return "provider" if known and not self._plan.endpoint.key else "models"

    async def _ask_key(self, endpoint: Endpoint) -> str:
        if endpoint.key:
            topic = f"Key (Enter keeps the one in {endpoint.key_env})"
        elif at := KEYS_AT.get(endpoint.name):
            self._dialogue.tell(f"· make a key at {at} and paste it; Enter alone goes back")
            topic = "Key"
        else:
            topic = "Key (Enter if it needs none)"
        return await self._dialogue.secret(topic)

    async def _models(self) -> Step:
        self._offered = ()
        endpoint = self._plan.endpoint
        if not self._check or not endpoint.base_url:
            return "model"
        self._dialogue.tell(f"· asking {endpoint.name} for its models")
        offered, at = await list_somewhere(endpoint, self._scope)
        self._found(at)
        if isinstance(offered, Trouble):
            if offered.kind != "address" or endpoint.name in KNOWN:
                return await self._after(offered, "models")
            self._dialogue.tell(f"· it does not list its models: {offered.says}")
            return "model"
        self._offered = offered
        if not offered:
            self._dialogue.tell(f"· {endpoint.name} has no models yet; name the one it will have")
        return "model"

    def _found(self, at: Endpoint) -> None:
        """Who was meant answers, but perhaps not quite where they were said to."""
        if at != self._plan.endpoint:
            self._dialogue.tell(f"· it answers at {at.base_url}")
            self._plan = structs.replace(self._plan, endpoint=at)

    async def _model(self) -> Step:
        endpoint = self._plan.endpoint
        model = model_of(self._settings, endpoint.name, self._take("model"))
        if not model and endpoint.name in BUILT_IN:
            model = usual(self._settings, endpoint)
        if not (model := model or self._plan.model):
            model = await self._ask_model(endpoint)
        self._plan = structs.replace(self._plan, model=model)
        return "trial"

    async def _ask_model(self, endpoint: Endpoint) -> str:
        options = model_options(self._settings, endpoint, self._offered)
        if not options:
            return await self._dialogue.text("Model")
        first = usual(self._settings, endpoint)
        typed = await self._dialogue.choose("Model", options, first=first, hint=MODEL_HINT, free=True)
        return model_of(self._settings, endpoint.name, typed)

    async def _trial(self) -> Step:
        if not self._plan.model:
            return "model"
        if not self._check:
            return "done"
        self._dialogue.tell(f"· asking {self._plan.name} one short question")
        answer, at = await ask_somewhere(self._plan, self._settings, self._scope, self._offered)
        self._found(at)
        if isinstance(answer, Trouble):
            return await self._after(answer, "trial")
        self._dialogue.tell(f"It answers ({answer:.1f} s).")
        return "done"

    async def _after(self, trouble: Trouble, failed: Step) -> Step:
        """What to do about it."""
        self._dialogue.warn(str(trouble))
        custom = self._plan.endpoint.name not in KNOWN
        ways = [
            way
            for way in _WAYS[trouble.kind]
            if (way != "address" or custom)
            and (way != "model" or failed == "trial")
            and (way != "key" or self._plan.endpoint.key_env or custom)
        ]
        chosen = await self._dialogue.choose("Now", [*(Option(way, _LABELS[way]) for way in ways), KEEP])
        if chosen == "model":
            self._plan = structs.replace(self._plan, model="")
        for way in ways:
            if chosen == way:
                return failed if way == "trial" else way
        self._check = False
        return "model" if failed == "models" else "done"
