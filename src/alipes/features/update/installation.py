"""How this alipes is installed, and who can put another version in its place."""

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from msgspec import Struct

InstallKind: TypeAlias = Literal["version", "checkout", "uv", "pipx", "image", "environment"]
"""A version in the home; an editable checkout; a tool of uv or pipx; a container image; any other environment."""
INDEX = "index"
"""The package index, as a source of versions."""
IMAGE_MARK = "alipes-image"
"""A file that the Containerfile puts into the environment of an image."""
DESCRIPTIONS: dict[InstallKind, str] = {
    "version": "a version in the home",
    "checkout": "a checkout",
    "uv": "a tool of uv",
    "pipx": "an application of pipx",
    "image": "a container image",
    "environment": "a Python environment",
}


class Installation(Struct, frozen=True):
    kind: InstallKind
    prefix: Path
    """The environment of the Python that runs."""
    origin: str = ""
    """The folder or address that alipes was installed from, or `index`; empty if that is not known."""

    @property
    def command(self) -> Path:
        """The program that starts exactly this installation."""
        return self.prefix / "bin" / "alipes"

    def describe(self) -> str:
        return f"{DESCRIPTIONS[self.kind]} at {self.origin if self.kind == 'checkout' else self.prefix}"


def find_installation(versions: Path, prefix: Path | None = None) -> Installation:
    """`versions`: the folder of versions in the home. `prefix`: the environment, if it is not the one that runs."""
    where = Path(sys.prefix) if prefix is None else prefix
    address, editable = _read_origin()
    if where.parent == versions:
        return Installation("version", where)
    if (where / "uv-receipt.toml").is_file():
        return Installation("uv", where, address)
    if (where / "pipx_metadata.json").is_file():
        return Installation("pipx", where, address)
    if (where / IMAGE_MARK).is_file():
        return Installation("image", where)
    return Installation("checkout" if editable else "environment", where, address)


def _read_origin() -> tuple[str, bool]:
    try:
        return parse_origin(importlib.metadata.distribution("alipes").read_text("direct_url.json"))
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return "", False


def parse_origin(text: str | None) -> tuple[str, bool]:
    """Where alipes was installed from, and whether it is used from there. `text`: what the installer noted, as it does
    for everything but the index. Of a wheel, its folder."""
    if not text:
        return INDEX, False
    noted = json.loads(text)
    url = str(noted.get("url", ""))
    if url.startswith("file:"):
        path = Path(unquote(urlsplit(url).path))
        url = str(path.parent if path.suffix == ".whl" else path)
    elif noted.get("vcs_info"):
        url = f"git+{url}"
    return url, bool(noted.get("dir_info", {}).get("editable"))
