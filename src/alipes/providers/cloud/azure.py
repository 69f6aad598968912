"""Access tokens for Azure OpenAI and Foundry, by Entra ID."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlencode

from alipes.kernel.errors import NotAuthorised, ProviderError
from alipes.kernel.models import Endpoint
from alipes.providers.cloud.tokens import METADATA_TIMEOUT_S, Renewed, TokenServer, parse_token
from alipes.runtime.http.clients import HttpClient

RESOURCE = "https://cognitiveservices.azure.com"
FOUNDRY_RESOURCE = "https://ai.azure.com"
METADATA_URL = "http://169.254.169.254"
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_HOW = (
    "set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or run on a machine of Azure with a managed "
    "identity; with a key, leave out `credentials` and set `key_env`"
)


class AzureCredentials:
    """Of an application (a secret, or a token of its cluster), or of the machine (a managed identity)."""

    def __init__(self, endpoint: Endpoint, http: HttpClient, *, clock: Callable[[], float] = time.time) -> None:
        self._endpoint, self._clock = endpoint, clock
        self._server = TokenServer(endpoint, http)
        self._token = Renewed(self._fetch, clock=clock)

    async def headers(self, _method: str, _url: str, headers: Mapping[str, str], _content: bytes) -> dict[str, str]:
        return {**headers, "authorization": f"Bearer {await self._token.get()}"}

    def forget(self) -> None:
        self._token.forget()

    async def _fetch(self) -> tuple[str, float]:
        now = self._clock()
        form = self._application()
        if form is not None:
            host = self._variable("AZURE_AUTHORITY_HOST") or "https://login.microsoftonline.com"
            url = f"{host.rstrip('/')}/{self._variable('AZURE_TENANT_ID')}/oauth2/v2.0/token"
            answer = await self._server.ask(url, form)
        else:
            answer = await self._ask_machine()
        return parse_token(self._endpoint.name, answer, now)

    @property
    def _resource(self) -> str:
        return FOUNDRY_RESOURCE if "/anthropic" in self._endpoint.base_url else RESOURCE

    def _application(self) -> dict[str, str] | None:
        tenant, client = self._variable("AZURE_TENANT_ID"), self._variable("AZURE_CLIENT_ID")
        secret, file = self._variable("AZURE_CLIENT_SECRET"), self._variable("AZURE_FEDERATED_TOKEN_FILE")
        if not tenant or not client or not (secret or file):
            return None
        form = {"client_id": client, "scope": f"{self._resource}/.default", "grant_type": "client_credentials"}
        if secret:
            return {**form, "client_secret": secret}
        try:
            assertion = Path(file).read_text().strip()
        except OSError as error:
            raise NotAuthorised(f"{self._endpoint.name}: {file} cannot be read: {error.strerror}") from error
        return {**form, "client_assertion_type": _ASSERTION, "client_assertion": assertion}

    async def _ask_machine(self) -> bytes:
        """The managed identity, from the service that the platform names, else from the machine."""
        named, header = self._variable("IDENTITY_ENDPOINT"), self._variable("IDENTITY_HEADER")
        query = {"resource": self._resource, "api-version": "2019-08-01" if named else "2018-02-01"}
        if client := self._variable("AZURE_CLIENT_ID"):
            query["client_id"] = client
        host = self._variable("AZURE_POD_IDENTITY_AUTHORITY_HOST") or METADATA_URL
        url = named or f"{host.rstrip('/')}/metadata/identity/oauth2/token"
        headers = {"x-identity-header": header} if named else {"metadata": "true"}
        try:
            return await self._server.ask(f"{url}?{urlencode(query)}", headers=headers, seconds=METADATA_TIMEOUT_S)
        except ProviderError as error:
            raise NotAuthorised(f"{self._endpoint.name} has no credentials: {_HOW}") from error

    def _variable(self, name: str) -> str:
        found = self._endpoint.variables.get(name)
        return "" if found is None else found.reveal()
