"""Opens the credentials of a cloud for a provider."""

from alipes.kernel.models import Endpoint
from alipes.providers.cloud.tokens import Credentials, SignedStreams
from alipes.providers.streaming import HttpStreams
from alipes.runtime.http.clients import ClientScope

CONNECT_S = 5.0


def open_signed(endpoint: Endpoint, http: HttpStreams, scope: ClientScope) -> HttpStreams:
    """`http` with the credentials of the endpoint's cloud."""
    return SignedStreams(http, _open_credentials(endpoint, scope))


def _open_credentials(endpoint: Endpoint, scope: ClientScope) -> Credentials:
    client = scope.http(f"credentials of {endpoint.name}", connect=CONNECT_S)
    match endpoint.credentials:
        case "google":
            from alipes.providers.cloud.google import GoogleCredentials  # noqa: PLC0415

            return GoogleCredentials(endpoint, client)
        case "azure":
            from alipes.providers.cloud.azure import AzureCredentials  # noqa: PLC0415

            return AzureCredentials(endpoint, client)
        case _:
            from alipes.providers.cloud.aws import AwsCredentials  # noqa: PLC0415

            return AwsCredentials(endpoint, client)
