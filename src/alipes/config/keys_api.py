"""The settings of the HTTP API, and of webhooks that lead into it."""

from alipes.config.key import Key

API_KEYS: tuple[Key, ...] = ()
