"""A container engine for tests: podman with its own storage, and an image that shows the programs of this machine."""

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.world.environment import FIXED, require

IMAGE = "localhost/alipes-test"
ENGINE = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
[containers]
log_driver = "none"
"""
STORAGE = """
[storage]
driver = "vfs"
graphroot = "{folder}/images"
runroot = "{folder}/run"
"""
FOLDERS = ("tmp", "proc", "dev", "sys", "run", "var/tmp", "root", "etc/alternatives", "usr")
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
ARGUMENTS = ("--volume", "/usr:/usr:ro", "--volume", "/etc/alternatives:/etc/alternatives:ro")
ARGUMENTS += ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
"""Arguments of `podman run`: the image itself is empty, and limits above those of this machine may not be set."""


class ContainerEngine:
    def __init__(self, folder: Path) -> None:
        require("podman")
        require("runc")
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder / "user"),
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            **FIXED,
        }

    def run(self, *arguments: str, data: bytes = b"") -> str:
        argv = ["podman", *arguments]
        return subprocess.run(
            argv, env=self.environment, input=data, check=True, stdout=subprocess.PIPE
        ).stdout.decode()

    def containers(self) -> list[str]:
        return self.run("ps", "-a", "--sync", "--format", "{{.Names}}").split()


@contextmanager
def open_container_engine() -> Iterator[ContainerEngine]:
    """Its folder has a short path: with one like those of pytest, podman does not notice the end of a container."""
    with TemporaryDirectory(prefix="podman-") as name:
        folder = Path(name)
        engine = ContainerEngine(folder)
        (folder / "user").mkdir(mode=0o700)
        (folder / "containers.conf").write_text(ENGINE)
        (folder / "storage.conf").write_text(STORAGE.format(folder=folder))
        engine.run("import", "-q", "-", IMAGE, data=_root_archive())
        try:
            yield engine
        finally:
            engine.run("system", "reset", "--force")


def _root_archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
            archive.addfile(folder)
        for name, target in LINKS.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
    return buffer.getvalue()
