"""Programs that use the API from outside. They import nothing of alipes, so they run where a client is installed."""

import os
import shutil
import sys
from pathlib import Path

import pytest

FOLDER = os.environ.get("ALIPES_TEST_CLIENTS", "")
"""Where `tools/clients FOLDER` has installed clients of others, each with what it needs."""
OURS = ("openai", "llm")
"""Those that the tests need anyway."""


def find_python(family: str) -> str:
    """A Python that has the package which `family` begins with. Skips the test if there is none."""
    package = family.split()[0]
    if package in OURS:
        return sys.executable
    python = Path(FOLDER, package, "bin", "python")
    if not FOLDER or not python.exists():
        pytest.skip(f"{package} is not installed: run `tools/clients FOLDER` and set ALIPES_TEST_CLIENTS=FOLDER")
    return str(python)


def find_node_modules() -> Path:
    """The packages of npm. Skips the test if there are none."""
    modules = Path(FOLDER, "npm", "node_modules")
    if not FOLDER or not modules.is_dir() or not shutil.which("node"):
        pytest.skip(
            "the clients of npm are not installed: run `tools/clients FOLDER` and set ALIPES_TEST_CLIENTS=FOLDER"
        )
    return modules
