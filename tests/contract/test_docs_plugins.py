"""The pages for plugin authors are true: the table of hooks is that of the code, all code runs.

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
from alipes.plugins.discovery import GROUPS, inspect_folder
from alipes.plugins.dispatch import DEADLINE, hook_parameters
from alipes.testing import open_agent

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
HOOKS = DOCS / "plugin-hooks.md"
NAMES = (
    *("write-a-plugin", "plugin-hooks", "plugin-api", "plugin-platforms", "plugin-stop", "test-a-plugin"),
    "install-plugins",
)
PAGES = [DOCS / f"{name}.md" for name in NAMES]
TEXT = "\n".join(page.read_text() for page in PAGES)
MARKED = re.compile(r"(<!-- begin hooks -->\n).*?(<!-- end hooks -->)", re.DOTALL)
BLOCKS = re.findall(r"^```python\n# (\S+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
INSTALL = (DOCS / "install-plugins.md").read_text()
TABLES = re.findall(r"^```toml\n(.*?)^```$", INSTALL, re.MULTILINE | re.DOTALL)


def hooks_table() -> str:
    rows = ["| hook | kind | parameters | when |", "|---|---|---|---|"]
    for name in (name for name in vars(specs) if hook_parameters(name) is not None):
        kind, _, when = " ".join(inspect.getdoc(getattr(specs, name)).split()).partition(": ")
        taken = ", ".join(f"`{each}`" for each in hook_parameters(name))
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
    page = HOOKS.read_text()
    assert MARKED.search(page)
    assert page == renewed(page), "run: python -m tests.contract.test_docs_plugins"


def test_every_kind_of_hook_is_explained():
    kinds = {row.split("|")[2].strip() for row in hooks_table().splitlines()[2:]}
    assert kinds == set(re.findall(r"^- \*\*(\w+)\*\*: ", HOOKS.read_text(), re.MULTILINE)[:4])


def test_every_block_of_code_has_a_file_name_and_no_name_is_used_twice():
    assert TEXT.count("```python") == len(BLOCKS) == len({name for name, _ in BLOCKS})


@pytest.mark.parametrize(("name", "lines"), [("greeter/__init__.py", 5), ("test_greeter.py", 4)])
def test_the_first_ones_are_as_short_as_promised(name, lines):
    assert sum(map(bool, dict(BLOCKS)[name].splitlines())) == lines


def test_every_test_of_the_pages_passes(project):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(project)))}
    argv = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"]
    done = subprocess.run(argv, cwd=project, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    tests = [name for name, _ in BLOCKS if name.startswith("test_")]
    assert all(f"PASSED {name}::" in done.stdout for name in tests), done.stdout


@pytest.mark.parametrize("name", [Path(name).parent.name for name, _ in BLOCKS if name.endswith("__init__.py")])
async def test_every_plugin_of_the_pages_can_be_loaded_and_closed(project, name, leaks):
    async with open_agent(plugins=[project / name], model=["hi"]) as agent:
        (facts,) = [each for each in agent.app.plugins.statuses() if each.name == name]
        assert facts.state == "on" and (facts.tools or facts.hooks or facts.provides)
        assert (await agent.say("hello")).text == "hi"


def test_the_tables_for_publishing_are_what_the_loader_reads(tmp_path):
    package, manifest = TABLES
    (group,) = tomllib.loads(package)["project"]["entry-points"]
    assert GROUPS[group] == "native" and "`hermes_agent.plugins`" in INSTALL
    (tmp_path / "plugin.toml").write_text(manifest)
    found = inspect_folder(tmp_path)
    fields = tomllib.loads(manifest)
    assert (found.name, found.kind) == ("weather", "native")
    assert {name: getattr(found.manifest, name) for name in fields if name != "name"} == {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items() if name != "name"
    }


def test_the_names_and_numbers_of_the_pages_are_those_of_the_code():
    assert f"A hook has {DEADLINE:g} seconds" in HOOKS.read_text()
    kit = (DOCS / "test-a-plugin.md").read_text()
    for name in ("open_agent", "call", "slow_text", "stall", "Clock", "every_stop", "no_leaks"):
        assert name in kit and name in alipes.testing.__all__
    for name in re.findall(r"`\.(\w+)(?:\([^`]*\))?`", kit):
        assert hasattr(alipes.testing.TurnReply, name) or hasattr(alipes.testing.Stall, name), name
    for name in re.findall(r"from alipes\.plugin import (.*)", TEXT):
        assert set(name.split(", ")) <= set(alipes.plugin.__all__)


KIT = {
    "agent": alipes.testing.Conversation,
    "running": alipes.testing.PendingReply,
    "leaks": alipes.testing.LeakCheck,
    "clock": alipes.testing.Clock,
    "reply": alipes.testing.TurnReply,
}
"""What the variables on the pages hold."""


@pytest.mark.parametrize("variable", KIT)
def test_every_member_of_the_test_kit_that_the_pages_name_exists(variable):
    known = inspect.getsource(KIT[variable])
    for name in set(re.findall(rf"\b{variable}\.(\w+)", TEXT)):
        assert re.search(rf"def {name}\b|self\.{name}\b|^ +{name}:", known, re.MULTILINE), name


def test_every_member_of_ctx_that_the_pages_name_exists():
    source = inspect.getsource(alipes.plugin.Context)
    members = set(re.findall(r"\bself\.(\w+)|def (\w+)", source))
    known = {name for pair in members for name in pair} | set(vars(alipes.plugin.Context))
    assert set(re.findall(r"\bctx\.(\w+)", TEXT)) <= known


if __name__ == "__main__":
    HOOKS.write_text(renewed(HOOKS.read_text()))
