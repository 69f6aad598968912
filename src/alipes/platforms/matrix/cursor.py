"""What a Matrix device has to remember: login, signing keys, how far it has listened. Only we may read it.

How far is a file, not a row: being behind is harmless, since the store refuses what it has already.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from alipes.platforms.state_files import read, write


class Login(Struct, frozen=True):
    """Who we are logged in as; the keys of encrypted rooms belong to the device."""

    user: str = ""
    device: str = ""
    token: str = ""
    made: bool = False
    """By us, with the password: so it may be made anew."""


class Signing(Struct, frozen=True):
    """The keys by which our account vouches for its devices."""

    user: str = ""
    master: str = ""
    own: str = ""
    """What signs devices; it is signed by the master."""
    signed: str = ""
    """The device that is signed."""


class Heard(Struct, frozen=True):
    user: str = ""
    since: str = ""
    """The homeserver's mark behind the last thing of which everything before has been handed over."""
    unread: tuple[dict[str, Any], ...] = ()
    """Messages that we could not decrypt so far, the oldest first."""


class Kept:
    """A folder with a few small files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._login, self._heard = folder / "login.key", folder / "heard.json"
        # No tool of ours reads what is called so.
        self._signing = folder / "signing.key"

    def login(self) -> Login:
        return read(self._login, Login)

    def log_in(self, login: Login) -> None:
        write(self._login, msgspec.json.encode(login))

    def signing(self) -> Signing:
        return read(self._signing, Signing)

    def sign(self, signing: Signing) -> None:
        write(self._signing, msgspec.json.encode(signing))

    def heard(self, user: str) -> Heard:
        """How far that user has listened."""
        heard = read(self._heard, Heard)
        return heard if heard.user == user else Heard(user)

    def hear(self, heard: Heard) -> None:
        write(self._heard, msgspec.json.encode(heard))


class Batch:
    """What one answer of the homeserver brought: done when each part of it is."""

    def __init__(self, since: str, settled: Callable[[], None]) -> None:
        self.since, self._settled = since, settled
        self.left = 1
        """Parts that are not done; one for whoever still adds to them."""

    def add(self) -> None:
        self.left += 1

    def done(self) -> None:
        self.left -= 1
        if not self.left:
            self._settled()


class Progress:
    """How far everything has been handed over. Batches begin in order, and end in any."""

    def __init__(self, since: str, moved: Callable[[str], None]) -> None:
        self.since, self._moved = since, moved
        self._open: deque[Batch] = deque()

    def begin(self, since: str) -> Batch:
        batch = Batch(since, self._settle)
        self._open.append(batch)
        return batch

    def _settle(self) -> None:
        before = self.since
        while self._open and not self._open[0].left:
            self.since = self._open.popleft().since
        if self.since != before:
            self._moved(self.since)
