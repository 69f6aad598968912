"""State of a Matrix device in private files: login, signing keys, sync position.

A lost or old sync position is harmless, since the store ignores messages that it already has.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from alipes.platforms.state_files import read_state, write_atomic


class MatrixLogin(Struct, frozen=True):
    """Our login. The keys of encrypted rooms belong to the device."""

    user: str = ""
    device: str = ""
    token: str = ""
    made: bool = False
    """True if we logged in with the password and may do so again."""


class SigningKeys(Struct, frozen=True):
    """Cross-signing keys of our account."""

    user: str = ""
    master: str = ""
    own: str = ""
    """Signs devices; is itself signed by the master key."""
    signed: str = ""
    """Id of the signed device."""


class SyncState(Struct, frozen=True):
    user: str = ""
    since: str = ""
    """The homeserver's sync token before which everything was delivered."""
    unread: tuple[dict[str, Any], ...] = ()
    """Events that could not be decrypted so far, oldest first."""


class MatrixState:
    """A folder with a few small files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._login, self._sync_path = folder / "login.key", folder / "heard.json"
        # our tools do not read files of this name
        self._signing = folder / "signing.key"

    def login(self) -> MatrixLogin:
        return read_state(self._login, MatrixLogin)

    def save_login(self, login: MatrixLogin) -> None:
        write_atomic(self._login, msgspec.json.encode(login))

    def signing(self) -> SigningKeys:
        return read_state(self._signing, SigningKeys)

    def save_signing(self, signing: SigningKeys) -> None:
        write_atomic(self._signing, msgspec.json.encode(signing))

    def sync_state(self, user: str) -> SyncState:
        """Sync state of a user."""
        heard = read_state(self._sync_path, SyncState)
        return heard if heard.user == user else SyncState(user)

    def save_sync_state(self, heard: SyncState) -> None:
        write_atomic(self._sync_path, msgspec.json.encode(heard))


class SyncBatch:
    """The events of one sync response; done when each part of it is."""

    def __init__(self, since: str, settled: Callable[[], None]) -> None:
        self.since, self._settled = since, settled
        self.left = 1
        """Unfinished parts; one counts for the code that still adds parts."""

    def add(self) -> None:
        self.left += 1

    def done(self) -> None:
        self.left -= 1
        if not self.left:
            self._settled()


class SyncPosition:
    """Position up to which everything was delivered. Batches start in order and finish in any order."""

    def __init__(self, since: str, moved: Callable[[str], None]) -> None:
        self.since, self._moved = since, moved
        self._open: deque[SyncBatch] = deque()

    def begin(self, since: str) -> SyncBatch:
        batch = SyncBatch(since, self._settle)
        self._open.append(batch)
        return batch

    def _settle(self) -> None:
        before = self.since
        while self._open and not self._open[0].left:
            self.since = self._open.popleft().since
        if self.since != before:
            self._moved(self.since)
