"""docs/plugins.md tells the truth: its table is that of the hooks, and all its code is run.

`python -m tests.contract.test_docs_plugins` renews the table.
"""

import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import alipes.plugin
import alipes.testing
from alipes.plugins import specs
from alipes.plugins.discovery import GROUPS, look_at
from alipes.plugins.dispatch import DEADLINE, parameters
from alipes.testing import open_agent

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "plugins.md"
MARKED = re.compile(r"(<!-- begin hooks -->\n).*?(<!-- end hooks -->)", re.DOTALL)
BLOCKS = re.findall(r"^```python\n# (\S+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
TABLES = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def hooks_table() -> str:
    rows = ["| hook | kind | parameters | when |", "|---|---|---|---|"]
    for name in (name for name in vars(specs) if parameters(name) is not None):
        kind, _, when = " ".join(inspect.getdoc(getattr(specs, name)).split()).partition(": ")
        taken = ", ".join(f"`{each}`" for each in parameters(name))
        rows.append(f"| `{name}` | {kind.lower()} | {taken} | {when[0].upper()}{when[1:]} |")
    return "\n".join(rows) + "\n"


def renewed(page: str) -> str:
    return MARKED.sub(lambda found: found[1] + hooks_table() + found[2], page)


@pytest.fixture
def project(tmp_path):
    for name, code in BLOCKS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    return tmp_path


def test_the_table_of_hooks_is_that_of_the_code():
    page = PAGE.read_text()
    assert MARKED.search(page)
    assert page == renewed(page), "run: python -m tests.contract.test_docs_plugins"


def test_every_kind_of_hook_is_explained():
    kinds = {row.split("|")[2].strip() for row in hooks_table().splitlines()[2:]}
    assert kinds == set(re.findall(r"^- \*\*(\w+)\*\*: ", PAGE.read_text(), re.MULTILINE)[:4])


def test_no_code_is_without_a_name_and_none_is_told_twice():
    assert PAGE.read_text().count("```python") == len(BLOCKS) == len({name for name, _ in BLOCKS})


@pytest.mark.parametrize(("name", "lines"), [("greeter/__init__.py", 5), ("test_greeter.py", 4)])
def test_the_first_ones_are_as_short_as_promised(name, lines):
    assert sum(map(bool, dict(BLOCKS)[name].splitlines())) == lines


def test_every_test_of_the_page_passes(project):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(project)))}
    argv = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"]
    done = subprocess.run(argv, cwd=project, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    tests = [name for name, _ in BLOCKS if name.startswith("test_")]
    assert all(f"PASSED {name}::" in done.stdout for name in tests), done.stdout


@pytest.mark.parametrize(
    "name", [Path(name).parent.name for name, _ in BLOCKS if name.endswith("__init__.py")]
)
async def test_every_plugin_of_the_page_can_be_loaded_and_closed(project, name, leaks):
    async with open_agent(plugins=[project / name], model=["hi"]) as agent:
        (facts,) = [each for each in agent.app.plugins.facts() if each.name == name]
        assert facts.state == "on" and (facts.tools or facts.hooks or facts.provides)
        assert (await agent.say("hello")).text == "hi"


def test_the_tables_for_publishing_are_what_the_loader_reads(tmp_path):
    package, manifest = TABLES
    (group,) = tomllib.loads(package)["project"]["entry-points"]
    assert GROUPS[group] == "native" and "`hermes_agent.plugins`" in PAGE.read_text()
    (tmp_path / "plugin.toml").write_text(manifest)
    found = look_at(tmp_path)
    told = tomllib.loads(manifest)
    assert (found.name, found.kind) == ("weather", "native")
    assert {name: getattr(found.manifest, name) for name in told if name not in ("name", "requires_env")} == {
        name: value for name, value in told.items() if name not in ("name", "requires_env")
    }
    assert found.manifest.requires_env == tuple(told["requires_env"])


def test_the_names_and_numbers_of_the_page_are_those_of_the_code():
    page = PAGE.read_text()
    assert f"A hook has {DEADLINE:g} seconds" in page
    kit = page.partition("## The test kit")[2]
    for name in ("open_agent", "call", "slowly", "stall", "Clock", "every_stop", "no_leaks"):
        assert name in kit and name in alipes.testing.__all__
    for name in re.findall(r"`\.(\w+)(?:\([^`]*\))?`", kit):
        assert hasattr(alipes.testing.Reply, name) or hasattr(alipes.testing.Stall, name), name
    for name in re.findall(r"from alipes\.plugin import (.*)", page):
        assert set(name.split(", ")) <= set(alipes.plugin.__all__)


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", PAGE.read_text()):
        assert (PAGE.parent / target).exists(), target


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
