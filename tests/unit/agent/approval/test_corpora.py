"""The rules against corpora of commands: what happened when bash ran them, dangerous and everyday ones.

They were made for a home with secrets in it, and a project `work` in that home.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from alipes.agent.approval.assessment import assess_call
from alipes.agent.approval.shell.host.rules import judge
from alipes.kernel.messages import ToolCall
from alipes.tools.common import Places
from tests.world.shell_classes import EFFECTS, EVERYDAY, RISKS

CORPORA = Path(__file__).parents[3] / "corpora"
REMOVES = "#!/bin/sh\nrm -rf ~/victim\n"
HOME_FILES = (
    *(".ssh/id_rsa", ".ssh/id_rsa.pub", ".ssh/deploy_key", ".ssh/config", ".aws/credentials", ".netrc", ".bashrc"),
    *("notes.txt", ".kube/config", ".config/gh/hosts.yml"),
    *(".alipes/.env", ".alipes/alipes.db", ".alipes/config.toml", "victim/f", "sub/x"),
)
WORK_FILES = {
    ".bashrc": "evil",
    ".env": "KEY=1",
    "x.py": "print(1)",
    "x.sh": "echo hi\n",
    "evil.sh": REMOVES,
    "bin/ls": REMOVES,
    "cdhome.sh": "cd ~\n",
    "evil.pl": 'use File::Path; remove_tree("$ENV{HOME}/victim"); 1;',
    "evil.js": 'require("fs").rmSync(process.env.HOME+"/victim",{recursive:true})',
    "evilmod.py": 'import shutil,os\nshutil.rmtree(os.path.expanduser("~/victim"))\n',
    "evil.vim": ':call system("rm -rf ~/victim")\nq\n',
    "evil.ed": "!rm -rf ~/victim\nq\n",
    "evilhome/.bashrc": "evil",
    ".git/HEAD": "ref: refs/heads/main",
    "evil.mk": "all:\n\trm -rf ~/victim\n",
    "Makefile": "all:\n\techo hi\nclean:\n\trm -rf build\n",
    "package.json": '{"scripts": {"test": "echo hi"}}',
    "e.awk": 'BEGIN{system("rm -rf ~/victim")}',
    "e.sed": "1e rm -rf ~/victim\n",
    "e.pl": 'use File::Path; remove_tree("$ENV{HOME}/victim");',
    "e.py": 'import shutil,os\nshutil.rmtree(os.path.expanduser("~/victim"))\n',
    "src/x": "",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    home = Path(os.path.realpath(tmp_path_factory.mktemp("corpora"))) / "u"
    for path, text in {
        **dict.fromkeys(HOME_FILES, "canary"),
        **{f"work/{k}": v for k, v in WORK_FILES.items()},
    }.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)
    for name in ("evil.sh", "bin/ls"):
        (home / "work" / name).chmod(0o755)
    return Places(home=str(home), alipes_home=str(home / ".alipes"), scratch=("/tmp/scratch", "/tmp/mktemp"))


def rows(name: str) -> list[list[str]]:
    lines = (CORPORA / f"{name}.tsv").read_text().splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


def is_asked(places: Places, written: str) -> bool:
    command = json.loads(written).replace("/home/u", places.home)
    return judge(command, places, f"{places.home}/work") is not None


def test_every_command_that_had_an_effect_is_asked_about(world):
    assert [row for row in rows("shell-effects") if row[2] == "1" and not is_asked(world, row[3])] == []


def test_every_command_that_reaches_outside_the_project_is_asked_about(world):
    assert [row for row in rows("shell-outside") if not is_asked(world, row[1])] == []


def test_every_dangerous_command_is_asked_about(world):
    dangerous = [row for row in rows("shell-dangerous") if row[2] in ("caught", "gap")]
    assert [row for row in dangerous if not is_asked(world, row[1])] == []


def test_at_most_one_in_a_hundred_everyday_commands_is_asked_about(world):
    everyday = rows("shell-benign")
    asked = [row[1] for row in everyday if is_asked(world, row[1])]
    assert len(asked) <= len(everyday) / 100, asked


def count_contained(places: Places, corpus: str, column: int) -> int:
    commands = [json.loads(row[column]).replace("/home/u", places.home) for row in rows(corpus)]
    calls = (ToolCall("c", "terminal", {"command": command}) for command in commands)
    return sum(assess_call(call, f"{places.home}/work", places, contained=True) is not None for call in calls)


@pytest.mark.parametrize(
    ("corpus", "column", "asked"), [("dangerous", 1, 98), ("effects", 3, 22), ("outside", 1, 10), ("benign", 1, 0)]
)
def test_in_a_sandbox_only_what_it_does_not_contain_is_asked_about(world, corpus, column, asked):
    assert count_contained(world, f"shell-{corpus}", column) == asked


def test_the_rules_for_a_machine_without_a_sandbox_are_not_loaded_in_one():
    code = (
        "import sys; from alipes.agent.approval.assessment import assess_call; from alipes.kernel.messages import ToolCall;"
        "from alipes.tools.common import Places; places = Places(home='/u', alipes_home='/u/.alipes');"
        "assert assess_call(ToolCall('c', 'terminal', {'command': 'rm -rf .git; python3 -c 1'}), '/u', places,"
        " contained=True); sys.exit(any('approval.shell.host' in name for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_class_of_effect_is_asked_about(world):
    assert [command for command in EFFECTS if not is_asked(world, json.dumps(command))] == []


def test_every_class_of_risk_is_asked_about(world):
    assert [command for command in RISKS if not is_asked(world, json.dumps(command))] == []


def test_everyday_work_is_not_asked_about(world):
    assert [command for command in EVERYDAY if is_asked(world, json.dumps(command))] == []
