"""Creates plugin sources: folders, Git repositories, wheels."""

import base64
import hashlib
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.world.environment import require

NATIVE = """\
\"\"\"Knows the way.\"\"\"

from alipes.plugin import Context, tool


@tool(effect="read")
async def look_up(place: str) -> str:
    \"\"\"Where a place is.\"\"\"
    return f"{place} is over there"


async def turn_ended(ending: str) -> None:
    return None


async def setup(ctx: Context) -> None:
    ctx.command("way", _way, help="show the way")


async def _way(args: str, inbound: object) -> str:
    return f"to {args}"
"""
HERMES = """\
def register(ctx):
    ctx.register_tool(name="hail", toolset="hailing", schema=SCHEMA, handler=hail)
    ctx.register_hook("post_tool_call", seen)


SCHEMA = {"name": "hail", "description": "Hail somebody.", "parameters": {"type": "object", "properties": {}}}


def hail(args, **kwargs):
    return "hail"


def seen(tool_name, **kwargs):
    return None
"""


def native(folder: Path, name: str = "ways", version: str = "1.0", code: str = NATIVE) -> Path:
    """A native plugin in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(code)
    about = {"name": name, "version": version, "description": "Knows the way.", "author": "A. Walker"}
    (folder / "plugin.toml").write_text("".join(f'{key} = "{value}"\n' for key, value in about.items()))
    return folder


def hermes(folder: Path, name: str = "hailer", code: str = HERMES) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(code)
    (folder / "plugin.yaml").write_text(f"name: {name}\nversion: 0.3.0\ndescription: Hails.\n")
    return folder


def git(folder: Path, *words: str) -> str:
    """Run Git there with a fixed identity, ignoring the settings of this machine."""
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    quiet = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [require("git"), "-c", "init.defaultBranch=main", *words],
        cwd=folder,
        env={**who, **quiet},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def commit(folder: Path, message: str = "change") -> str:
    """Commit everything in the folder; returns the commit's hash."""
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def wheel(
    folder: Path,
    name: str = "walks",
    version: str = "1.0",
    *,
    files: Mapping[str, str] | None = None,
    entries: str = "[alipes.plugins]\nways = walks\n",
    requires: tuple[str, ...] = (),
) -> Path:
    """Build a wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    metadata = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: Knows the way.\nAuthor: A. Walker\n{needs}"
    )
    contents = {
        **(files or {f"{name}/__init__.py": NATIVE}),
        f"{about}/METADATA": metadata,
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if entries:
        contents[f"{about}/entry_points.txt"] = entries
    record = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in contents.items()]
    contents[f"{about}/RECORD"] = "\n".join([*record, f"{about}/RECORD,,", ""])
    file = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
    return file


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
