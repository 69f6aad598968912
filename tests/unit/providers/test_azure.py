"""What is particular about Azure OpenAI and Foundry: addresses, keys, content filters."""

import pytest

from alipes.config.urls import InvalidValue, check_base_url
from alipes.kernel.errors import NotAuthorised, ProviderError, Refused
from alipes.kernel.models import Endpoint, Secret
from alipes.providers.errors import ModelTarget
from alipes.providers.streaming import build_request
from alipes.runtime.http.clients import ClientScope
from tests.world.model_calls import converse, provider
from tests.world.model_replies import Fail, Raw
from tests.world.model_server import ModelServer

DATED = "https://me.openai.azure.com/openai/deployments/mine?api-version=2025-04-01-preview"


def request_to(url, api="openai-chat", path="/chat/completions"):
    return build_request(ModelTarget(Endpoint("azure", api, url, Secret("key")), "m"), path, {})


@pytest.mark.parametrize(
    "url",
    [DATED, "https://me.openai.azure.com/openai/v1", "https://me.services.ai.azure.com/openai/v1",
     "https://me.cognitiveservices.azure.com/openai/v1", "https://me.openai.azure.us/openai/v1"],
)  # fmt: skip
def test_the_key_is_sent_in_the_header_of_azure(url):
    headers = request_to(url).headers
    assert headers["api-key"] == "key" and "authorization" not in headers


@pytest.mark.parametrize("url", ["https://api.openai.com/v1", "https://openai.azure.com.example/v1"])
def test_other_servers_get_a_bearer_token(url):
    headers = request_to(url).headers
    assert headers["authorization"] == "Bearer key" and "api-key" not in headers


def test_claude_on_foundry_takes_the_header_of_anthropic():
    sent = request_to("https://me.services.ai.azure.com/anthropic", "anthropic", "/messages")
    assert sent.url == "https://me.services.ai.azure.com/anthropic/v1/messages"
    assert sent.headers["x-api-key"] == "key"


def test_a_dated_version_stays_at_the_end_of_the_address():
    assert check_base_url(DATED) == DATED
    place = "https://me.openai.azure.com/openai/deployments/mine"
    assert request_to(DATED).url == f"{place}/chat/completions?api-version=2025-04-01-preview"
    with pytest.raises(InvalidValue, match="has a query"):
        check_base_url("https://me.openai.azure.com/openai/v1?key=secret")


async def test_chunks_about_content_filters_carry_no_text():
    about = '{"choices":[],"prompt_filter_results":[{"prompt_index":0,"content_filter_results":{}}]}'
    said = '{"choices":[{"index":0,"delta":{"content":"hi"},"content_filter_results":{"hate":{"filtered":false}}}]}'
    later = '{"choices":[{"index":0,"content_filter_offsets":{"check_offset":1},"content_filter_results":{}}]}'
    end = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
    body = "".join(f"data: {each}\n\n" for each in (about, said, later, end, "[DONE]"))
    async with ModelServer([Raw(body.encode())]) as server, ClientScope() as scope:
        heard = await converse(provider("openai-chat", server.url("openai-chat"), scope), "hello")
    assert heard.text == "hi"


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        (Fail(400, body='{"error":{"code":"content_filter","message":"The response was filtered","innererror":'
         '{"code":"ResponsibleAIPolicyViolation"}}}'), Refused, "content policy"),
        (Fail(404, body='{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does '
         'not exist."}}'), ProviderError, "has no model 'm'"),
        (Fail(401, body='{"error":{"code":"PermissionDenied","message":"Principal does not have access to API/'
         'Operation."}}'), NotAuthorised, "refused these credentials of Azure"),
    ],
)  # fmt: skip
async def test_errors_say_what_to_do(reply, kind, says):
    async with ModelServer([reply]) as server, ClientScope() as scope:
        azure = provider("openai-chat", server.url("openai-chat"), scope, credentials="azure")
        with pytest.raises(kind, match=says):
            await converse(azure, "hello")
