"""The questions of `alipes setup`. Makes and tests a plan; does not save it."""

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from msgspec import structs

from alipes.cli.setup import choices, plan
from alipes.cli.setup.check import ProblemKind, SetupProblem, list_models_or_v1, try_model_or_v1
from alipes.cli.setup.prompts import Choice, Prompter
from alipes.config.environment import Variables
from alipes.config.known_providers import CLOUD_TITLES, CLOUDS, KNOWN, is_built_in
from alipes.config.settings import Settings
from alipes.config.urls import is_label
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Endpoint
from alipes.providers.registry import find_facts, has_model_list
from alipes.runtime.http.clients import ClientScope

Step: TypeAlias = Literal["provider", "address", "key", "models", "model", "trial", "done"]
_NEXT_STEPS: dict[ProblemKind, tuple[Step, ...]] = {
    "key": ("key", "provider"),
    "credit": ("trial", "model", "key", "provider"),
    "unreachable": ("trial", "address", "provider"),
    "address": ("address", "model", "provider"),
    "model": ("model", "trial", "provider"),
    "other": ("provider", "model", "trial"),
}
"""Next steps after a problem, best first; `trial`: try the same again."""
_LABELS: dict[Step, str] = {
    "trial": "try again",
    "key": "another key",
    "address": "another address",
    "model": "another model",
    "provider": "another provider",
}
_EMPTY_PLAN = plan.SetupPlan(Endpoint("", "openai-chat"))
SAVE_UNTESTED = Choice("keep", "save anyway", "untested")


class SetupWizard:
    """Asks step by step until the plan works or the user saves it untested."""

    def __init__(
        self, settings: Settings, variables: Variables, scope: ClientScope, prompter: Prompter, given: plan.SetupOptions
    ) -> None:
        self._settings, self._variables, self._scope = settings, variables, scope
        self._prompter, self._options = prompter, given
        self._check = given.check
        self._plan = _EMPTY_PLAN
        self._offered: tuple[str, ...] = ()

    async def run(self) -> plan.SetupPlan:
        """Ask for everything that was not given. Raises SetupCancelled, or ConfigError for a wrong option."""
        steps: dict[Step, Callable[[], Awaitable[Step]]] = {
            "provider": self._provider,
            "address": self._address,
            "key": self._key,
            "models": self._models,
            "model": self._model,
            "trial": self._try_model,
        }
        step: Step = "provider"
        while step != "done":
            step = await steps[step]()
        return self._plan

    def _take_option(self, flag: str) -> str:
        """The value of an option the first time; empty later, so that the user is asked."""
        value: str = getattr(self._options, flag)
        self._options = structs.replace(self._options, **{flag: ""})
        return value

    async def _provider(self) -> Step:
        name = self._take_option("provider")
        url, api = self._options.base_url, self._options.api
        self._plan = _EMPTY_PLAN
        if not name and url:
            return "address"
        if not name:
            look = self._check and self._settings.local_servers
            found = await choices.find_local_servers(self._settings, self._scope) if look else None
            options = choices.provider_choices(self._settings, self._variables, found)
            first = choices.default_provider(self._settings, found)
            name = await self._prompter.choose("Provider", options, first=first)
        if name == choices.CLOUD:
            name = await self._prompter.choose("Cloud", choices.cloud_choices())
        if name == choices.OTHER_SERVER:
            return "address"
        self._take_option("base_url"), self._take_option("api")
        if not url and name in CLOUDS and name not in self._settings.providers:
            url = await self._cloud_url(name)
        endpoint = plan.make_endpoint(self._settings, name, base_url=url, api=api)
        self._plan = plan.SetupPlan(plan.add_variables(endpoint, self._variables))
        return "key"

    async def _cloud_url(self, name: str) -> str:
        cloud = CLOUDS[name]
        while not is_label(own := await self._prompter.text(cloud.asks)):
            self._prompter.warn("Use letters, digits and -.")
        return cloud.address.format(own)

    async def _address(self) -> Step:
        """Ask for the address, API and name of another server."""
        present = self._plan.endpoint
        url = await self._url(self._take_option("base_url"), present.base_url)
        api = self._take_option("api") or await self._prompter.choose("API", choices.APIS, first=present.api)
        name = present.name or await self._name(plan.suggest_name(url))
        endpoint = plan.make_endpoint(self._settings, name, base_url=url, api=api)
        endpoint = plan.add_variables(endpoint, self._variables)
        if present.key:
            endpoint = structs.replace(endpoint, key=present.key, key_env=present.key_env, credentials="key")
        self._plan = structs.replace(self._plan, endpoint=endpoint)
        return "key"

    async def _url(self, given: str, first: str) -> str:
        if not given:
            self._prompter.note("· the URL without /chat/completions, such as http://127.0.0.1:9100/v1")
        while True:
            url = given or await self._prompter.text("Address", first)
            try:
                return plan.check_url(url)
            except ConfigError as error:
                self._prompter.warn(str(error))
                given, first = "", url

    async def _name(self, first: str) -> str:
        while True:
            name = await self._prompter.text("Name", first)
            try:
                if plan.check_name(name) not in KNOWN:
                    return name
                self._prompter.warn(f"{name} is a known provider: choose another name.")
            except ConfigError as error:
                self._prompter.warn(str(error))

    async def _key(self) -> Step:
        endpoint = self._plan.endpoint
        given = plan.SetupOptions(key=self._take_option("key"), key_env=self._take_option("key_env"))
        known = endpoint.name in KNOWN
        if given == plan.SetupOptions():
            if known and not endpoint.key_env:
                return "models"
            given = plan.SetupOptions(key=await self._ask_key(endpoint))
        try:
            self._plan = plan.add_key(self._plan, self._variables, given)
        except ConfigError as error:
            self._prompter.warn(str(error))
            return "key"
        return "provider" if known and not self._plan.endpoint.key else "models"

    async def _ask_key(self, endpoint: Endpoint) -> str:
        if endpoint.credentials == "google":  # has no keys
            return ""
        if endpoint.credentials != "key":
            topic = f"Key (Enter to use {CLOUD_TITLES[endpoint.credentials]} credentials of this computer)"
        elif endpoint.key:
            topic = f"Key (Enter to use {endpoint.key_env})"
        elif at := choices.KEY_PAGES.get(endpoint.name):
            self._prompter.note(f"· Get a key at {at} and paste it here (Enter to go back)")
            topic = "Key"
        else:
            topic = "Key (Enter for none)"
        return await self._prompter.secret(topic)

    async def _models(self) -> Step:
        self._offered = ()
        endpoint = self._plan.endpoint
        if not self._check or not has_model_list(endpoint):
            return "model"
        self._prompter.note(f"· listing the models of {endpoint.name}")
        offered, at = await list_models_or_v1(endpoint, self._scope)
        self._use_endpoint(at)
        if isinstance(offered, SetupProblem):
            if offered.kind != "address" or endpoint.name in KNOWN:
                return await self._ask_next_step(offered, "models")
            self._prompter.note(f"· no model list: {offered.message}")
            return "model"
        self._offered = offered
        if not offered:
            self._prompter.note(f"· {endpoint.name} has no models yet; enter the name of one")
        return "model"

    def _use_endpoint(self, at: Endpoint) -> None:
        """Use the endpoint that answered, which may have another address."""
        if at != self._plan.endpoint:
            self._prompter.note(f"· using {at.base_url}")
            self._plan = structs.replace(self._plan, endpoint=at)

    async def _model(self) -> Step:
        endpoint = self._plan.endpoint
        model = plan.model_name(self._settings, endpoint.name, self._take_option("model"))
        if not model and is_built_in(endpoint.name):
            model = plan.default_model(self._settings, endpoint)
        if not (model := model or self._plan.model):
            model = await self._ask_model(endpoint)
        known = find_facts(f"{endpoint.name}/{model}", self._settings.models).window
        listed = next((choices.offered_window(name) for name in self._offered if name == model), None)
        self._plan = structs.replace(self._plan, model=model, window=None if known else listed)
        return "trial"

    async def _ask_model(self, endpoint: Endpoint) -> str:
        options = choices.model_choices(self._settings, endpoint, self._offered)
        if not options:
            return await self._prompter.text("Model")
        first = plan.default_model(self._settings, endpoint)
        hint = choices.MODEL_HINT if any(option.note for option in options) else choices.NAMES_HINT
        typed = await self._prompter.choose("Model", options, first=first, hint=hint, free=True)
        return plan.model_name(self._settings, endpoint.name, typed)

    async def _try_model(self) -> Step:
        if not self._plan.model:
            return "model"
        if not self._check:
            return "done"
        self._prompter.note(f"· testing {self._plan.name}")
        answer, at = await try_model_or_v1(self._plan, self._settings, self._scope, self._offered)
        self._use_endpoint(at)
        if isinstance(answer, SetupProblem):
            return await self._ask_next_step(answer, "trial")
        self._prompter.note(f"Test passed ({answer:.1f} s).")
        return "done"

    async def _ask_next_step(self, trouble: SetupProblem, failed: Step) -> Step:
        self._prompter.warn(str(trouble))
        custom = self._plan.endpoint.name not in KNOWN
        ways = [
            way
            for way in _NEXT_STEPS[trouble.kind]
            if (way != "address" or custom)
            and (way != "model" or failed == "trial")
            and (way != "key" or self._plan.endpoint.key_env or custom)
        ]
        chosen = await self._prompter.choose(
            "What next?", [*(Choice(way, _LABELS[way]) for way in ways), SAVE_UNTESTED]
        )
        if chosen == "model":
            self._plan = structs.replace(self._plan, model="")
        if chosen == "trial":
            return failed
        for way in ways:
            if chosen == way:
                return way
        self._check = False
        return "model" if failed == "models" else "done"
