"""Signed requests to Amazon Bedrock, with credentials from the usual places of AWS."""

import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from configparser import ConfigParser, Error
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

import msgspec
from msgspec import Struct

from alipes.kernel.errors import NotAuthorised, ProviderError
from alipes.kernel.models import Endpoint, Secret
from alipes.providers.cloud.tokens import METADATA_TIMEOUT_S, Renewed, TokenServer
from alipes.runtime.http.clients import HttpClient
from alipes.runtime.http.sigv4 import SigningKey, sign

SERVICE = "bedrock"
METADATA_URL = "http://169.254.169.254"
CONTAINER_URL = "http://169.254.170.2"
LASTING_S = 10 * 365 * 86_400.0
"""Keys of the environment and of files have no end."""
_HOW = (
    "set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or add a profile to "
    "~/.aws/credentials"
)
_EXPORT = "; load them into the environment with `aws configure export-credentials --format env`"


class AwsKey(Struct, frozen=True):
    key: str
    secret: str
    token: str = ""


class _Answer(Struct):
    """Of a machine or a container."""

    AccessKeyId: str
    SecretAccessKey: str
    Token: str = ""
    Expiration: str = ""


class AwsCredentials:
    """From, in this order: a key of Bedrock, the environment, a web identity, the files of AWS, container, machine."""

    def __init__(self, endpoint: Endpoint, http: HttpClient, *, clock: Callable[[], float] = time.time) -> None:
        self._endpoint, self._clock = endpoint, clock
        self._server = TokenServer(endpoint, http)
        self._key = Renewed(self._fetch, clock=clock)

    async def headers(self, method: str, url: str, headers: Mapping[str, str], content: bytes) -> dict[str, str]:
        if bearer := self._variable("AWS_BEARER_TOKEN_BEDROCK"):
            return {**headers, "authorization": f"Bearer {bearer}"}
        found = await self._key.get()
        signer = SigningKey(Secret(found.key), Secret(found.secret), self._region(), SERVICE, Secret(found.token))
        signed = {name: value for name, value in headers.items() if name == "content-type"}
        return {**headers, **sign(signer, method, url, signed, content, now=self._clock())}

    def forget(self) -> None:
        self._key.forget()

    def _region(self) -> str:
        """As the address names it, else as the environment does."""
        named = re.search(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.", self._endpoint.base_url)
        found = named[1] if named else self._variable("AWS_REGION") or self._variable("AWS_DEFAULT_REGION")
        return found or self._profile().get("region", "us-east-1")

    async def _fetch(self) -> tuple[AwsKey, float]:
        ways: tuple[Callable[[], Awaitable[tuple[AwsKey, float] | None]], ...] = (
            self._from_environment, self._from_web_identity, self._from_files, self._from_container,
            self._from_machine,
        )  # fmt: skip
        for way in ways:
            if (found := await way()) is not None:
                return found
        raise NotAuthorised(f"{self._endpoint.name} has no credentials: {_HOW}")

    async def _from_environment(self) -> tuple[AwsKey, float] | None:
        key, secret = self._variable("AWS_ACCESS_KEY_ID"), self._variable("AWS_SECRET_ACCESS_KEY")
        found = AwsKey(key, secret, self._variable("AWS_SESSION_TOKEN"))
        return (found, self._clock() + LASTING_S) if key and secret else None

    async def _from_files(self) -> tuple[AwsKey, float] | None:
        values, named = self._profile(), self._variable("AWS_PROFILE")
        key, secret = values.get("aws_access_key_id", ""), values.get("aws_secret_access_key", "")
        if named and not (key and secret):
            why = "has no keys of its own" if values else "is in neither ~/.aws/credentials nor ~/.aws/config"
            raise NotAuthorised(f"{self._endpoint.name}: the profile {named} {why}{_EXPORT if values else ''}")
        found = AwsKey(key, secret, values.get("aws_session_token", ""))
        # another program may renew the keys of a session in the file
        return (found, self._clock() + (900.0 if found.token else LASTING_S)) if key and secret else None

    def _profile(self) -> dict[str, str]:
        """The values of the profile in both files."""
        name = self._variable("AWS_PROFILE") or "default"
        config = self._variable("AWS_CONFIG_FILE") or "~/.aws/config"
        secrets = self._variable("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
        values: dict[str, str] = {}
        for path, section in ((config, name if name == "default" else f"profile {name}"), (secrets, name)):
            parser = ConfigParser(interpolation=None)
            try:
                parser.read(os.path.expanduser(path))
            except (Error, UnicodeDecodeError) as error:
                raise NotAuthorised(f"{self._endpoint.name}: {path} cannot be read") from error
            if parser.has_section(section):
                values |= dict(parser[section])
        return values

    async def _from_web_identity(self) -> tuple[AwsKey, float] | None:
        """The role of a pod or a job, for its token."""
        file, role = self._variable("AWS_WEB_IDENTITY_TOKEN_FILE"), self._variable("AWS_ROLE_ARN")
        if not file or not role:
            return None
        form = {"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": role}
        form["RoleSessionName"] = self._variable("AWS_ROLE_SESSION_NAME") or "alipes"
        form["WebIdentityToken"] = self._read(file)
        url = self._variable("AWS_ENDPOINT_URL_STS") or f"https://sts.{self._region()}.amazonaws.com"
        answer = await self._server.ask(f"{url.rstrip('/')}/", form, headers={"accept": "text/xml"})
        try:
            texts = {each.tag.rpartition("}")[2]: each.text or "" for each in ElementTree.fromstring(answer).iter()}
            found = AwsKey(texts["AccessKeyId"], texts["SecretAccessKey"], texts["SessionToken"])
        except (ElementTree.ParseError, KeyError) as error:
            raise NotAuthorised(f"{self._endpoint.name}: unexpected credentials from {url}") from error
        return found, _end(texts.get("Expiration", ""), self._clock())

    async def _from_container(self) -> tuple[AwsKey, float] | None:
        relative = self._variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        url = f"{CONTAINER_URL}{relative}" if relative else self._variable("AWS_CONTAINER_CREDENTIALS_FULL_URI")
        if not url:
            return None
        file = self._variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
        token = self._read(file) if file else self._variable("AWS_CONTAINER_AUTHORIZATION_TOKEN")
        return self._parse(await self._server.ask(url, headers={"authorization": token} if token else None))

    async def _from_machine(self) -> tuple[AwsKey, float] | None:
        """The role of a virtual machine, with a session of its metadata service (version 2)."""
        if self._variable("AWS_EC2_METADATA_DISABLED").lower() == "true":
            return None
        host = (self._variable("AWS_EC2_METADATA_SERVICE_ENDPOINT") or METADATA_URL).rstrip("/")
        ttl, roles = {"x-aws-ec2-metadata-token-ttl-seconds": "21600"}, "latest/meta-data/iam/security-credentials/"
        ask, within = self._server.ask, METADATA_TIMEOUT_S
        try:
            token = await ask(f"{host}/latest/api/token", headers=ttl, method="PUT", seconds=within)
            session = {"x-aws-ec2-metadata-token": token.decode()}
            role = (await ask(f"{host}/{roles}", headers=session, seconds=within)).decode().split()[0]
            return self._parse(await ask(f"{host}/{roles}{role}", headers=session, seconds=within))
        except (ProviderError, IndexError):
            return None

    def _parse(self, answer: bytes) -> tuple[AwsKey, float]:
        try:
            found = msgspec.json.decode(answer, type=_Answer)
        except msgspec.DecodeError as error:
            raise NotAuthorised(f"{self._endpoint.name}: unexpected credentials: {error}") from error
        key = AwsKey(found.AccessKeyId, found.SecretAccessKey, found.Token)
        return key, _end(found.Expiration, self._clock())

    def _read(self, file: str) -> str:
        try:
            return Path(file).read_text().strip()
        except OSError as error:
            raise NotAuthorised(f"{self._endpoint.name}: {file} cannot be read: {error.strerror}") from error

    def _variable(self, name: str) -> str:
        found = self._endpoint.variables.get(name)
        return "" if found is None else found.reveal()


def _end(text: str, now: float) -> float:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return now + 900.0
