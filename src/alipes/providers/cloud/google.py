"""Access tokens for Google Vertex, from the Application Default Credentials."""

import base64
import os
import time
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from alipes.kernel.errors import NotAuthorised, ProviderError
from alipes.kernel.models import Endpoint
from alipes.providers.cloud.rsa import sign_rs256
from alipes.providers.cloud.tokens import METADATA_TIMEOUT_S, Renewed, TokenServer, parse_token
from alipes.runtime.http.clients import HttpClient

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
USUAL_FILE = "~/.config/gcloud/application_default_credentials.json"
TOKEN_URL = "https://oauth2.googleapis.com/token"
METADATA_PATH = "/computeMetadata/v1/instance/service-accounts/default/token"
LIFETIME_S = 3600
_HOW = (
    "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to the file of a service "
    "account"
)


class _File(Struct):
    """A file of credentials."""

    type: str = ""
    client_email: str = ""
    private_key: str = ""
    private_key_id: str = ""
    token_uri: str = TOKEN_URL
    client_id: str = ""
    client_secret: str = ""
    refresh_token: str = ""
    quota_project_id: str = ""


class GoogleCredentials:
    """Of a service account, of a person (`gcloud auth application-default login`), or of the machine."""

    def __init__(self, endpoint: Endpoint, http: HttpClient, *, clock: Callable[[], float] = time.time) -> None:
        self._endpoint, self._clock = endpoint, clock
        self._server = TokenServer(endpoint, http)
        self._token = Renewed(self._fetch, clock=clock)

    async def headers(self, _method: str, _url: str, headers: Mapping[str, str], _content: bytes) -> dict[str, str]:
        token, project = await self._token.get()
        more = {"x-goog-user-project": project} if project else {}
        return {**headers, **more, "authorization": f"Bearer {token}"}

    def forget(self) -> None:
        self._token.forget()

    async def _fetch(self) -> tuple[tuple[str, str], float]:
        file = self._read_file()
        now = self._clock()
        if file is None:
            host = self._variable("GCE_METADATA_HOST") or "metadata.google.internal"
            url, flavor = f"http://{host}{METADATA_PATH}", {"metadata-flavor": "Google"}
            try:
                answer = await self._server.ask(url, headers=flavor, seconds=METADATA_TIMEOUT_S)
            except ProviderError as error:
                raise NotAuthorised(f"{self._endpoint.name} has no credentials: {_HOW}") from error
            project = ""
        else:
            answer = await self._exchange(file, now)
            project = file.quota_project_id
        token, end = parse_token(self._endpoint.name, answer, now)
        return (token, project), end

    async def _exchange(self, file: _File, now: float) -> bytes:
        try:
            return await self._server.ask(file.token_uri, self._form(file, now))
        except NotAuthorised as error:
            if file.type != "authorized_user":
                raise
            raise NotAuthorised(f"{error}; run `gcloud auth application-default login` again") from error

    def _read_file(self) -> _File | None:
        named = self._variable("GOOGLE_APPLICATION_CREDENTIALS")
        path = os.path.expanduser(named or USUAL_FILE)
        try:
            with open(path, "rb") as file:
                return msgspec.json.decode(file.read(), type=_File)
        except FileNotFoundError:
            if named:
                raise NotAuthorised(f"{self._endpoint.name}: {path}, which GOOGLE_APPLICATION_CREDENTIALS names, is "
                                    "missing") from None  # fmt: skip
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise NotAuthorised(f"{self._endpoint.name}: {path} cannot be read: {error}") from error

    def _form(self, file: _File, now: float) -> dict[str, str]:
        if file.type == "authorized_user":
            known = {"client_id": file.client_id, "client_secret": file.client_secret}
            return {**known, "refresh_token": file.refresh_token, "grant_type": "refresh_token"}
        if file.type != "service_account":
            why = f"credentials of type {file.type!r} are not supported; service_account and authorized_user are"
            raise NotAuthorised(f"{self._endpoint.name}: {why}")
        return {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": self._assertion(file, now)}

    def _assertion(self, file: _File, now: float) -> str:
        """The signed wish for a token (a JWT)."""
        head = {"alg": "RS256", "typ": "JWT", "kid": file.private_key_id}
        claims = {"iss": file.client_email, "scope": SCOPE, "aud": file.token_uri}
        claims |= {"iat": int(now), "exp": int(now) + LIFETIME_S}  # type: ignore[dict-item]
        text = b".".join(_encode(msgspec.json.encode(each)) for each in (head, claims))
        try:
            signature = sign_rs256(file.private_key, text)
        except (ValueError, IndexError) as error:
            raise NotAuthorised(f"{self._endpoint.name}: the file of the service account: {error}") from error
        return b".".join((text, _encode(signature))).decode()

    def _variable(self, name: str) -> str:
        found = self._endpoint.variables.get(name)
        return "" if found is None else found.reveal()


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
