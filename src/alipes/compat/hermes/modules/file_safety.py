"""`agent.file_safety`: files that a provider must not upload."""

import os
from pathlib import Path

from alipes.compat.hermes.modules.current_app import bridge, is_bound
from alipes.store.quick_reads import store_files

_SECRET_FOLDERS = (".ssh", ".gnupg", ".aws", ".kube")


def get_read_block_error(path: str) -> str | None:
    """Why a file must not be read; None if it may."""
    file = Path(os.path.realpath(os.path.expanduser(path)))
    secret = file.name == ".env" or any(each in file.parts for each in _SECRET_FOLDERS)
    if is_bound():
        paths = bridge().settings.paths
        private = (paths.env, paths.config, *store_files(paths.home))
        secret = secret or file in (Path(os.path.realpath(each)) for each in private)
    return f"{file} may contain secrets and is not read" if secret else None


def raise_if_read_blocked(path: str) -> None:
    """Raises ValueError."""
    if why := get_read_block_error(path):
        raise ValueError(why)
