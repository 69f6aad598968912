"""Credentials of clouds: where they come from, that one request renews them for all, and their signatures."""

import asyncio
import base64
import json
from types import SimpleNamespace
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from alipes.config.loader import load_settings
from alipes.kernel.errors import NotAuthorised, Transient
from alipes.kernel.models import Endpoint, Secret
from alipes.providers.anthropic import AnthropicProvider
from alipes.providers.cloud.aws import AwsCredentials
from alipes.providers.cloud.azure import AzureCredentials
from alipes.providers.cloud.google import GoogleCredentials
from alipes.providers.cloud.rsa import sign_rs256
from alipes.providers.cloud.tokens import SignedStreams
from alipes.providers.gemini import GeminiProvider
from alipes.runtime.http.clients import ClientScope
from tests.world.model_calls import KEY, converse
from tests.world.model_replies import Say
from tests.world.model_server import ModelServer

NOW = 1_800_000_000.0
URL = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/anthropic.claude-v1%3A0/converse-stream"


class Servers:
    """Answers by the start of the address; notes what was asked."""

    def __init__(self, **answers):
        self.answers = {name.replace("_", "/"): answer for name, answer in answers.items()}
        self.asked = []

    async def request(self, method, url, *, headers, content, timeout):
        self.asked.append((method, url, headers, parse_qs((content or b"").decode())))
        await asyncio.sleep(0)
        found = next((answer for name, answer in self.answers.items() if name in url), (404, {"error": "nothing here"}))
        status, body = found
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return SimpleNamespace(status_code=status, content=data, reason_phrase="Reason")


def endpoint(kind, base_url="https://a.example", **variables):
    given = {name: Secret(str(value)) for name, value in variables.items()}
    return Endpoint("cloud", "anthropic", base_url, credentials=kind, variables=given)


async def headers_of(credentials, url="https://a.example/x"):
    return await credentials.headers("POST", url, {"content-type": "application/json"}, b"{}")


@pytest.fixture(scope="module")
def private_key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def to_pem(key, form=serialization.PrivateFormat.PKCS8):
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


# Google ------------------------------------------------------------------------------------------------------------


def test_a_signature_of_a_service_account_is_that_of_the_library(private_key):
    signed = sign_rs256(to_pem(private_key), b"text")
    assert signed == private_key.sign(b"text", padding.PKCS1v15(), hashes.SHA256())


@pytest.mark.parametrize("pem", ["", "-----BEGIN PRIVATE KEY-----\n!!\n-----END PRIVATE KEY-----", "cut", "other"])
def test_an_unusable_private_key_is_a_value_error(pem, private_key):
    whole = to_pem(private_key)
    other = to_pem(private_key, serialization.PrivateFormat.TraditionalOpenSSL)
    pem = {"cut": whole[:300] + "\n-----END PRIVATE KEY-----", "other": other}.get(pem, pem)
    with pytest.raises(ValueError, match="private key"):
        sign_rs256(pem, b"text")


async def test_a_service_account_asks_for_a_token_once_for_all_requests_and_again_before_it_ends(tmp_path, private_key):
    file = tmp_path / "key.json"
    account = {"type": "service_account", "client_email": "me@x", "private_key": to_pem(private_key)}
    file.write_text(json.dumps({**account, "token_uri": "https://token.example/t"}))
    servers, now = Servers(token_example=(404, {})), [NOW]
    servers.answers = {"token.example": (200, {"access_token": "t1", "expires_in": 3600})}
    google = GoogleCredentials(endpoint("google", GOOGLE_APPLICATION_CREDENTIALS=file), servers, clock=lambda: now[0])
    found = await asyncio.gather(*(headers_of(google) for _ in range(5)))
    assert {each["authorization"] for each in found} == {"Bearer t1"} and len(servers.asked) == 1
    (_, _, _, form) = servers.asked[0]
    head, claims, _ = (base64.urlsafe_b64decode(part + "==") for part in form["assertion"][0].split("."))
    assert json.loads(head)["alg"] == "RS256"
    assert json.loads(claims)["iss"] == "me@x" and json.loads(claims)["exp"] == NOW + 3600
    now[0] += 3400
    servers.answers = {"token.example": (200, {"access_token": "t2"})}
    assert (await headers_of(google))["authorization"] == "Bearer t2"


async def test_a_person_logged_in_by_gcloud_has_a_refresh_token(tmp_path):
    file = tmp_path / "adc.json"
    person = {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r"}
    file.write_text(json.dumps({**person, "quota_project_id": "p"}))
    servers = Servers()
    servers.answers = {"oauth2.googleapis.com": (200, {"access_token": "t"})}
    google = GoogleCredentials(endpoint("google", GOOGLE_APPLICATION_CREDENTIALS=file), servers)
    found = await headers_of(google)
    assert (found["authorization"], found["x-goog-user-project"]) == ("Bearer t", "p")
    assert servers.asked[0][3]["grant_type"] == ["refresh_token"]


async def test_a_machine_of_google_has_a_metadata_server(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    servers = Servers()
    servers.answers = {"meta.example/computeMetadata": (200, {"access_token": "t"})}
    google = GoogleCredentials(endpoint("google", GCE_METADATA_HOST="meta.example"), servers)
    assert (await headers_of(google))["authorization"] == "Bearer t"
    servers.answers = {}
    google.forget()
    with pytest.raises(NotAuthorised, match="gcloud auth application-default login"):
        await headers_of(google)


@pytest.mark.parametrize(
    ("text", "why"), [(None, "is missing"), ("{", "cannot be read"), ('{"type": "external_account"}', "not supported")]
)
async def test_an_unusable_file_is_named(tmp_path, text, why):
    file = tmp_path / "adc.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(NotAuthorised, match=why):
        await headers_of(GoogleCredentials(endpoint("google", GOOGLE_APPLICATION_CREDENTIALS=file), Servers()))


# Azure -------------------------------------------------------------------------------------------------------------


async def test_an_application_of_azure_asks_entra_for_a_token():
    known = {"AZURE_TENANT_ID": "ten", "AZURE_CLIENT_ID": "app", "AZURE_CLIENT_SECRET": "sec"}
    servers = Servers()
    servers.answers = {"login.microsoftonline.com/ten/oauth2": (200, {"access_token": "t", "expires_in": 3599})}
    azure = AzureCredentials(endpoint("azure", **known), servers)
    assert (await headers_of(azure))["authorization"] == "Bearer t"
    assert servers.asked[0][3]["scope"] == ["https://cognitiveservices.azure.com/.default"]
    foundry = AzureCredentials(endpoint("azure", "https://r.services.ai.azure.com/anthropic", **known), servers)
    await headers_of(foundry)
    assert servers.asked[1][3]["scope"] == ["https://ai.azure.com/.default"]


async def test_a_pod_of_azure_gives_its_token_and_a_machine_its_identity(tmp_path):
    file = tmp_path / "token"
    file.write_text("pod\n")
    servers = Servers()
    servers.answers = {"oauth2/v2.0/token": (200, {"access_token": "t"}), "169.254": (200, {"access_token": "m"})}
    known = {"AZURE_TENANT_ID": "ten", "AZURE_CLIENT_ID": "app", "AZURE_FEDERATED_TOKEN_FILE": file}
    assert (await headers_of(AzureCredentials(endpoint("azure", **known), servers)))["authorization"] == "Bearer t"
    assert servers.asked[0][3]["client_assertion"] == ["pod"]
    assert (await headers_of(AzureCredentials(endpoint("azure"), servers)))["authorization"] == "Bearer m"
    servers.answers = {}
    with pytest.raises(NotAuthorised, match="AZURE_TENANT_ID"):
        await headers_of(AzureCredentials(endpoint("azure"), servers))


async def test_a_secret_that_was_refused_and_a_server_in_trouble_are_different_errors():
    known = {"AZURE_TENANT_ID": "ten", "AZURE_CLIENT_ID": "app", "AZURE_CLIENT_SECRET": "sec"}
    servers = Servers()
    servers.answers = {"oauth2": (401, {"error": "invalid_client", "error_description": "the secret is expired"})}
    with pytest.raises(NotAuthorised, match="the secret is expired"):
        await headers_of(AzureCredentials(endpoint("azure", **known), servers))
    servers.answers = {"oauth2": (503, b"")}
    with pytest.raises(Transient):
        await headers_of(AzureCredentials(endpoint("azure", **known), servers))


async def test_something_else_than_a_token_is_said_to_be_so(tmp_path):
    known = {"AZURE_TENANT_ID": "ten", "AZURE_CLIENT_ID": "app", "AZURE_CLIENT_SECRET": "sec"}
    file = tmp_path / "adc.json"
    file.write_text('{"type": "authorized_user"}')
    for body in (b"<html>", b"{}", b'{"access_token": "t", "expires_in": "soon"}', b"\xff"):
        servers = Servers()
        servers.answers = {"": (200, body)}
        azure = AzureCredentials(endpoint("azure", **known), servers)
        google = GoogleCredentials(endpoint("google", GOOGLE_APPLICATION_CREDENTIALS=file), servers)
        for credentials in (azure, google):
            with pytest.raises(NotAuthorised, match="sent something else"):
                await headers_of(credentials)


async def test_a_login_that_has_ended_says_how_to_renew_it(tmp_path):
    file = tmp_path / "adc.json"
    file.write_text('{"type": "authorized_user"}')
    servers = Servers()
    servers.answers = {"": (400, {"error": "invalid_grant", "error_description": "Token has been expired or revoked."})}
    with pytest.raises(NotAuthorised, match=r"expired or revoked\.; run `gcloud auth application-default login` again"):
        await headers_of(GoogleCredentials(endpoint("google", GOOGLE_APPLICATION_CREDENTIALS=file), servers))


# AWS ---------------------------------------------------------------------------------------------------------------

KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG"}


async def test_aws_signs_with_the_key_of_the_environment_for_the_region_of_the_address():
    aws = AwsCredentials(endpoint("aws", URL, **KEYS), Servers(), clock=lambda: NOW)
    found = await headers_of(aws, URL)
    assert "Credential=AKIDEXAMPLE/20270115/eu-west-1/bedrock/aws4_request" in found["authorization"]
    assert found["host"] == "bedrock-runtime.eu-west-1.amazonaws.com"


async def test_a_key_of_bedrock_is_sent_as_it_is():
    aws = AwsCredentials(endpoint("aws", URL, AWS_BEARER_TOKEN_BEDROCK="bed", **KEYS), Servers())
    assert (await headers_of(aws, URL))["authorization"] == "Bearer bed"


async def test_a_profile_of_the_files_of_aws(tmp_path):
    (tmp_path / "credentials").write_text("[work]\naws_access_key_id = FILEKEY\naws_secret_access_key = s%1\n")
    (tmp_path / "config").write_text("[profile work]\nregion = us-west-2\n")
    files = {"AWS_SHARED_CREDENTIALS_FILE": tmp_path / "credentials", "AWS_CONFIG_FILE": tmp_path / "config"}
    aws = AwsCredentials(endpoint("aws", "https://proxy.example", AWS_PROFILE="work", **files), Servers())
    assert "Credential=FILEKEY/" in (found := (await headers_of(aws))["authorization"]) and "/us-west-2/" in found


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("", "the profile work is in neither"),
        ("[profile work]\nsso_session = me\n", "aws configure export-credentials"),
    ],
)
async def test_a_profile_without_keys_is_named(tmp_path, config, why):
    (tmp_path / "config").write_text(config)
    files = {"AWS_SHARED_CREDENTIALS_FILE": tmp_path / "none", "AWS_CONFIG_FILE": tmp_path / "config"}
    with pytest.raises(NotAuthorised, match=why):
        await headers_of(AwsCredentials(endpoint("aws", URL, AWS_PROFILE="work", **files), Servers()), URL)


async def test_the_role_of_a_machine_of_a_container_and_of_a_pod(tmp_path):
    nothing = {"AWS_SHARED_CREDENTIALS_FILE": tmp_path / "none", "AWS_CONFIG_FILE": tmp_path / "none"}
    key = {"AccessKeyId": "ROLE", "SecretAccessKey": "s", "Token": "t", "Expiration": "2099-01-01T00:00:00Z"}
    servers = Servers()
    servers.answers = {
        "api/token": (200, b"session"),
        "security-credentials/my-role": (200, key),
        "security-credentials/": (200, b"my-role\n"),
        "169.254.170.2/task": (200, key),
    }
    machine = AwsCredentials(endpoint("aws", URL, **nothing), servers)
    found = await headers_of(machine, URL)
    assert "Credential=ROLE/" in found["authorization"] and found["x-amz-security-token"] == "t"
    assert [method for method, *_ in servers.asked] == ["PUT", "GET", "GET"]
    container = AwsCredentials(endpoint("aws", URL, AWS_CONTAINER_CREDENTIALS_RELATIVE_URI="/task", **nothing), servers)
    assert "Credential=ROLE/" in (await headers_of(container, URL))["authorization"]
    file = tmp_path / "token"
    file.write_text("pod")
    answer = b"<R xmlns='x'><C><AccessKeyId>POD</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t"
    servers.answers = {"sts.eu-west-1.amazonaws.com": (200, answer + b"</SessionToken></C></R>")}
    pod = AwsCredentials(endpoint("aws", URL, AWS_WEB_IDENTITY_TOKEN_FILE=file, AWS_ROLE_ARN="arn", **nothing), servers)
    assert "Credential=POD/" in (await headers_of(pod, URL))["authorization"]


async def test_without_any_credentials_the_ways_to_give_them_are_named(tmp_path):
    nothing = {"AWS_SHARED_CREDENTIALS_FILE": tmp_path / "none", "AWS_CONFIG_FILE": tmp_path / "none"}
    with pytest.raises(NotAuthorised, match="AWS_BEARER_TOKEN_BEDROCK"):
        await headers_of(AwsCredentials(endpoint("aws", URL, **nothing), Servers()), URL)


def test_variables_of_a_cloud_are_read_from_the_home_and_only_secrets_are_hidden(tmp_path):
    text = '[providers.br]\napi = "bedrock"\nbase_url = "https://b"\ncredentials = "aws"\n'
    (tmp_path / "config.toml").write_text(text)
    settings = load_settings(tmp_path, {**KEYS, "AWS_REGION": "eu-west-1"})
    assert settings.providers["br"].variables["AWS_REGION"].reveal() == "eu-west-1"
    assert "wJalrXUtnFEMI/K7MDENG" in settings.secrets() and "eu-west-1" not in settings.secrets()


# A whole answer -----------------------------------------------------------------------------------------------------


class Stamp:
    """Credentials of a test."""

    def __init__(self):
        self.forgotten = 0

    async def headers(self, method, url, headers, content):
        return {**headers, "authorization": f"Bearer {KEY}"}

    def forget(self):
        self.forgotten += 1


@pytest.mark.parametrize(
    ("api", "place", "path"),
    [
        ("gemini", "/projects/p/locations/l/publishers/google", "/models/m:streamGenerateContent"),
        ("anthropic", "/projects/p/locations/l/publishers/anthropic", "/models/m:streamRawPredict"),
    ],
)
async def test_vertex_serves_both_wires_at_addresses_of_a_project(api, place, path):
    async with ModelServer([Say("ok")], key=KEY) as server, ClientScope() as scope:
        base = f"{server.url('gemini')}{place}"
        stamp = Stamp()
        streams = SignedStreams(scope.http("vertex", base_url=base), stamp)
        kind = {"gemini": GeminiProvider, "anthropic": AnthropicProvider}[api]
        heard = await converse(kind(Endpoint("vertex", api, base, credentials="google"), streams), "hello")
    (asked,) = server.requests
    assert (heard.text, asked.path, stamp.forgotten) == ("ok", f"/v1{place}{path}", 0)
    if api == "anthropic":
        assert asked.body["anthropic_version"] == "vertex-2023-10-16" and b'"model"' not in asked.raw


async def test_refused_credentials_are_fetched_again_for_the_next_request():
    async with ModelServer([Say("ok")], key="another") as server, ClientScope() as scope:
        base, stamp = server.url("gemini"), Stamp()
        streams = SignedStreams(scope.http("vertex", base_url=base), stamp)
        with pytest.raises(NotAuthorised):
            await converse(GeminiProvider(Endpoint("vertex", "gemini", base), streams), "hello")
    assert stamp.forgotten == 1
