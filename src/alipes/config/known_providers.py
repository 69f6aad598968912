"""Well-known providers as data; `[providers.NAME]` in the configuration overrides them."""

import re
from importlib import import_module

from msgspec import Struct, structs

from alipes.kernel.models import Api, CredentialKind, Endpoint


def _keyed(name: str, api: Api, base_url: str, model: str) -> Endpoint:
    return Endpoint(name, api, base_url, key_env=f"{name.upper()}_API_KEY", model=model)


def _local(name: str, port: int) -> Endpoint:
    return Endpoint(name, "openai-chat", f"http://127.0.0.1:{port}/v1")


_ALL = (
    _keyed("anthropic", "anthropic", "https://api.anthropic.com", "claude-sonnet-5-5"),
    _keyed("openai", "openai-responses", "https://api.openai.com/v1", "gpt-6.1-sol"),
    _keyed("openrouter", "openai-chat", "https://openrouter.ai/api/v1", "openrouter/auto"),
    _keyed("gemini", "openai-chat", "https://generativelanguage.googleapis.com/v1beta/openai", "gemini-3.8-flash"),
    _keyed("deepseek", "openai-chat", "https://api.deepseek.com/v1", "deepseek-flash"),
    _keyed("groq", "openai-chat", "https://api.groq.com/openai/v1", "openai/gpt-oss-120b"),
    _keyed("xai", "openai-chat", "https://api.x.ai/v1", "grok-4.7"),
    _keyed("mistral", "openai-chat", "https://api.mistral.ai/v1", "mistral-large-4"),
    _local("ollama", 11434),
    _local("lmstudio", 1234),
    # Its server announces keep-alive but closes after each answer, so ask for that.
    structs.replace(_local("llamacpp", 8080), headers={"connection": "close"}),
    _local("vllm", 8000),
    Endpoint("embedded", "embedded"),
)

KNOWN = {endpoint.name: endpoint for endpoint in _ALL}
KEYED = tuple(endpoint.name for endpoint in _ALL if endpoint.key_env)
"""Providers that need a key, in the order in which keys in the environment choose the model."""
LOCAL = ("ollama", "lmstudio", "llamacpp", "vllm")
"""Servers on this machine, in the order in which their default ports are tried."""
CLOUD_VARIABLES = {
    "aws": (
        *("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
        *("AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_REGION", "AWS_DEFAULT_REGION"),
        *("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_ENDPOINT_URL_STS"),
        *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        *("AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
        *("AWS_EC2_METADATA_DISABLED", "AWS_EC2_METADATA_SERVICE_ENDPOINT"),
    ),
    "azure": (
        *("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"),
        *("AZURE_AUTHORITY_HOST", "IDENTITY_ENDPOINT", "IDENTITY_HEADER", "AZURE_POD_IDENTITY_AUTHORITY_HOST"),
    ),
    "google": ("GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST"),
}
"""By the kind of credentials, the variables in which the tools of a cloud look for them."""
CLOUD_TITLES = {"aws": "AWS", "azure": "Azure", "google": "Google Cloud"}
"""By the kind of credentials."""


class Cloud(Struct, frozen=True):
    """A provider whose address contains something of the person's own."""

    title: str
    api: Api
    credentials: CredentialKind
    address: str
    """With `{}` in place of it."""
    asks: str
    """What it is."""
    host: str
    """A pattern that finds its addresses."""

    def endpoint(self, name: str, own: str) -> Endpoint:
        return Endpoint(name, self.api, self.address.format(own), credentials=self.credentials)


_VERTEX = "https://aiplatform.googleapis.com/v1/projects/{}/locations/global/publishers"
_VERTEX_HOST = r"aiplatform\.[^/]*googleapis\.com/.*/publishers/"
CLOUDS = {
    "bedrock": Cloud(
        "Amazon Bedrock", "bedrock", "aws", "https://bedrock-runtime.{}.amazonaws.com",
        "Region, such as eu-west-1", r"//bedrock-runtime",
    ),
    "vertex": Cloud(
        "Gemini on Google Vertex", "gemini", "google", f"{_VERTEX}/google", "Project", f"{_VERTEX_HOST}google",
    ),
    "vertex-claude": Cloud(
        "Claude on Google Vertex", "anthropic", "google", f"{_VERTEX}/anthropic", "Project", f"{_VERTEX_HOST}anthropic",
    ),
    "foundry-claude": Cloud(
        "Claude on Microsoft Foundry", "anthropic", "azure", "https://{}.services.ai.azure.com/anthropic",
        "Resource", r"\.services\.ai\.azure\.com/anthropic",
    ),
    "azure": Cloud(
        "Azure OpenAI and Foundry", "openai-responses", "azure", "https://{}.openai.azure.com/openai/v1",
        "Resource", r"\.(?:openai|services\.ai|cognitiveservices)\.azure\.",
    ),
}  # fmt: skip
"""By the names under which the catalog knows their models."""


def find_cloud(address: str) -> str:
    """The name of the cloud that the address belongs to; empty if it is none."""
    return next((name for name, cloud in CLOUDS.items() if re.search(cloud.host, address)), "")


TEST_VARIABLE = "ALIPES_TEST_PROVIDER"
"""A module of `alipes.testing` that adds a provider when it is imported. Only test suites set it."""
DEMO_MODEL = "smollm2-135m"
"""The embedded model unless another GGUF is set."""


_FAMILIES = {
    "anthropic": r"claude|opus|sonnet|haiku|fable",
    "gemini": r"gemini",
    "deepseek": r"deepseek",
    "xai": r"grok",
    "mistral": r"mistral|ministral|magistral|codestral|devstral|pixtral",
    "ollama": r"llama|qwen|phi|gemma|smollm|.*:",
}


def guess_provider(model: str) -> str:
    """The provider that a model name without a prefix probably belongs to."""
    return next((name for name, start in _FAMILIES.items() if re.match(start, model, re.IGNORECASE)), "openai")


def is_built_in(name: str) -> bool:
    """True for providers that have no URL; they may be given without a model."""
    return name in KNOWN and not KNOWN[name].base_url


def add_test_provider(module: str) -> None:
    """Import the module of the test kit that `TEST_VARIABLE` names."""
    if module.isidentifier():
        import_module(f"alipes.testing.{module}")
