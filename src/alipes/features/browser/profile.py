"""Cookies and local storage that are kept between conversations, in one private file per profile."""

import json
import logging
import os
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


class ProfileFile:
    """The file of the chosen profile; without a name nothing is read or kept."""

    def __init__(self, folder: Path, name: str) -> None:
        self._name, self._path = name, folder / f"{name}.json"

    def read(self) -> Any:
        """What was kept; None if there is nothing."""
        if not self._name:
            return None
        try:
            return json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("browser: the profile %s cannot be read: %s", self._name, error)
            return None

    def write(self, state: Any) -> None:
        new = self._path.with_name(f"{self._path.name}.{os.urandom(4).hex()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(state, file)
            new.replace(self._path)
        except OSError as error:
            log.warning("browser: the profile %s cannot be saved: %s", self._name, error)
