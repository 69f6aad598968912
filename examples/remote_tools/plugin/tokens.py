"""The clients' secret: created once, stored in a file that only its owner can read."""

import os
import secrets
from contextlib import suppress
from pathlib import Path


class Token:
    """Read each time, so that all processes of one home use the same."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "token"
        if not self.path.exists():
            made = self._write()
            with suppress(FileExistsError):  # another process was faster; its token counts
                os.link(made, self.path)
            made.unlink()

    @property
    def text(self) -> str:
        return self.path.read_text().strip()

    def matches(self, offered: str) -> bool:
        return secrets.compare_digest(offered.encode(), self.text.encode())

    def renew(self) -> None:
        os.replace(self._write(), self.path)

    def _write(self) -> Path:
        path = self.path.with_name(f"token-{secrets.token_hex(4)}")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        return path
