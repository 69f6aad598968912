"""Brings something to a webhook as whoever has its secret would. It looks at no answer."""

import secrets
import time

import httpx2

from alipes.kernel.endpoints import Secret
from alipes.kernel.errors import ConfigError
from alipes.runtime.clients import ClientScope
from alipes.store.webhooks import Webhook
from alipes.web.webhooks_signing import signed

WITHIN = 20.0
"""Seconds to wait for an answer."""


async def bring(address: str, hook: Webhook, secret: Secret, body: bytes) -> tuple[int, str]:
    """Status and text of the answer. `address`: of the one that serves; ConfigError where it is silent."""
    if hook.style == "github":  # there the same body is the same delivery
        body = body.rstrip() + b" " * secrets.randbelow(4096)
    signature = signed(hook.style, secret, f"msg_{secrets.token_hex(12)}", body, now=time.time())
    headers = {"content-type": "application/json", **signature}
    async with ClientScope() as scope:
        try:
            answer = await scope.http("webhook").request(
                "POST", f"{address}/hooks/{hook.name}", headers=headers, content=body, timeout=WITHIN
            )
        except httpx2.HTTPError as error:
            raise ConfigError(f"{address} does not answer: {error}") from error
    return answer.status_code, answer.text
