"""Settings of Matrix."""

from typing import Annotated

from alipes.config.platforms import MAX_FILE_BYTES, MAX_IMAGE_BYTES, ChatConfig
from alipes.config.value_types import URL, VARIABLE
from alipes.kernel.models import Secret


class MatrixConfig(ChatConfig, frozen=True, kw_only=True):
    base_url: Annotated[str, URL, "URL of your homeserver, as in https://HOST. Empty: Matrix is not served."] = ""
    user: Annotated[str, "User id of the bot, as in @alipes:HOST."] = ""
    token_env: Annotated[str, VARIABLE, "Variable with an access token of that user."] = "MATRIX_TOKEN"
    token: Secret = Secret()
    password_env: Annotated[
        str, VARIABLE, "Variable with the user's password, if there is no token: it is used once to get one."
    ] = "MATRIX_PASSWORD"
    password: Secret = Secret()
    device: Annotated[str, "Name of the device that a password login creates."] = "alipes"
    encryption: Annotated[bool, "Whether to read and write encrypted rooms. Keys are stored in the home directory."] = (
        True
    )
    poll: float = 30.0
    """Duration of a long poll, in seconds."""
    patience: float = 30.0
    """Timeout of a call, in seconds."""
    largest: int = MAX_FILE_BYTES
    picture: int = MAX_IMAGE_BYTES

    @property
    def needs(self) -> dict[str, bool]:
        secret = bool(self.token) or bool(self.password)
        either = f"{self.token_env} or {self.password_env}"
        return {"matrix.base_url": bool(self.base_url), "matrix.user": bool(self.user), either: secret}
