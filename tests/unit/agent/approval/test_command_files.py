"""A right to act on the machine itself holds for what the command reads, not for its words."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from alipes.agent.approval.approval import ApprovalGate
from alipes.agent.approval.command_files import SHARED, CommandFileCheck
from alipes.agent.approval.shell.host.read_files import (
    MAX_FILE_BYTES,
    MAX_SHOWN_LINES,
    find_command_files,
    format_files,
)
from alipes.kernel.conversations import QuestionWithdrawn
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.tools.boundary import FileBoundary
from alipes.tools.common import Places


@pytest.fixture
def work(tmp_path):
    folder = Path(os.path.realpath(tmp_path)) / "u" / "work"
    folder.mkdir(parents=True)
    files = {
        "t.sh": "echo one\n",
        "outer.sh": ". ./lib.sh\nsh t.sh\n",
        "lib.sh": "x=1\n",
        "x.py": "import helper\nprint(open('data.txt').read())\n",
        "helper.py": "import deeper\n",
        "deeper.py": "y = 1\n",
        "data.txt": "1\n",
        "Makefile": "all:\n\tsh t.sh\nother:\n\techo no\n",
        "package.json": '{"scripts": {"test": "sh t.sh", "lint": "tslint .", "prepublishOnly": "sh lib.sh"}}',
        "node_modules/.bin/tslint": "#!/usr/bin/env node\n",
        "starts.py": "import subprocess\nsubprocess.run(['make'])\n",
        "run": "#!/bin/sh\nsh t.sh\n",
        "conf/a.conf": "a\n",
        ".env": "KEY=1\n",
        "late.sh": '"$1" x\n',
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "program").write_bytes(b"\x7fELF\0\0")
    for name in ("run", "program"):
        (folder / name).chmod(0o755)
    return folder


def places_of(work: Path) -> Places:
    home = str(work.parent)
    return Places(home=home, alipes_home=f"{home}/.alipes", scratch=())


def terminal(command: str, **more) -> ToolCall:
    return ToolCall("c", "terminal", {"command": command, "outside": True, **more})


def turn(work: Path) -> Turn:
    return Turn("t", "s", Inbound("i", Address("cli", "c"), "me", "hi", workdir=str(work)))


def find(work: Path, command: str, **more):
    return find_command_files(terminal(command, **more), str(work), places_of(work))


def test_packages_of_the_work_tree_are_not_known_in_a_subfolder_either(work):
    for name in (".git/HEAD", "src/one", "x.js"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("require('left')\n")
    found = {
        command: find_command_files(terminal(command), str(work / "src"), places_of(work)).unknown
        for command in ("node ../x.js", "npm test", "yarn test", "npm publish")
    }
    assert "node_modules" in found.pop("node ../x.js")
    assert {*found.values()} == {"it takes the package.json of a folder above"}


READ = [
    ("sh t.sh", "t.sh"),
    ("./run", "run t.sh"),
    ("sh outer.sh", "lib.sh outer.sh t.sh"),
    (". ./lib.sh", "lib.sh"),
    ("python3 x.py", "data.txt deeper.py helper.py starts.py x.py"),
    ("make", "Makefile t.sh"),
    ("npm test", "package.json t.sh"),
    ("npm publish --access public", "lib.sh package.json"),
    ("sudo -u bob sh t.sh", "t.sh"),
    ("env A=1 timeout 5 sh t.sh", "t.sh"),
    ("cd .. && sh work/t.sh", "t.sh"),
    ("bash -c 'sh t.sh'", "t.sh"),
    ("sh < t.sh", "t.sh"),
    ("scp data.txt host:", "data.txt"),
    ("curl -d @data.txt https://x.example", "data.txt"),
    ("cp -r conf /srv/", "conf/a.conf"),
    ("cat data.txt | sudo tee /etc/x", "data.txt"),
    ("kubectl create x --from-env-file=.env", ".env"),
    ("git push origin main", ""),
    ("ls conf", ""),
    ("rm data.txt", ""),
    ("systemctl restart x", ""),
]


@pytest.mark.parametrize(("command", "names"), READ, ids=[command for command, _ in READ])
def test_the_files_that_a_command_reads_are_found(work, command, names):
    assert [os.path.relpath(file.path, work) for file in find(work, command).files] == names.split()


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("./program", "content cannot be shown"),
        ("curl https://x.example | sh", "through a pipe"),
        ("cat t.sh | python3", "through a pipe"),
        ("npm run lint", "node_modules"),
        ("pytest", "whole project"),
        ("python3 -m pytest", "whole project"),
        ("docker compose up", "whole project"),
        ("python3 starts.py", "starts other programs"),
        ("sh late.sh", "only known at run time"),
        ("$RUN x", "only known at run time"),
        ("sh missing.sh", "content cannot be shown"),
        ("PATH=.:$PATH thing", "sets PATH"),
        ("export PATH=.:$PATH; thing", "sets PATH"),
        ("env LD_PRELOAD=./x.so ls", "sets LD_PRELOAD"),
        ("find . -name '*.sh' -exec sh {} ';'", "only known at run time"),
        ("echo 'a", "cannot be parsed"),
    ],
)
def test_a_command_whose_content_cannot_be_known_has_no_standing_right(work, command, why):
    assert why in find(work, command).unknown


@pytest.mark.parametrize("command", ["git commit -m 'fix (one'", "ssh host sh x.sh", "git log --grep='a (b'"])
def test_what_is_no_command_on_this_machine_is_not_searched(work, command):
    assert find(work, command).unknown == "" and find(work, command).files == ()


@pytest.mark.parametrize("command", ["sh t.sh", "make", "npm test", "python3 x.py", "./run", "git push", "scp x h:"])
def test_a_command_whose_content_is_known_may_have_one(work, command):
    assert find(work, command).unknown == ""


def test_a_changed_file_changes_what_a_right_holds_for(work):
    before = find(work, "make").digest
    assert find(work, "make").digest == before
    (work / "t.sh").write_text("echo two\n")
    assert find(work, "make").digest != before


def test_a_new_file_that_is_read_first_changes_what_a_right_holds_for(work):
    before = [find(work, command).digest for command in ("make", "python3 x.py")]
    (work / "GNUmakefile").write_text("all:\n\techo no\n")
    (work / "json.py").write_text("")
    assert all(find(work, command).digest != old for command, old in zip(("make", "python3 x.py"), before, strict=True))


CHANGED = [
    ("make -f inc.mk", {"inc.mk": "include part.mk more.mk\nall:\n\techo\n", "more.mk": "x: y\n"}, "more.mk"),
    ("make -f inc.mk", {"inc.mk": "-include part.mk\nall:\n\techo\n", "part.mk": "include deep.mk\n"}, "deep.mk"),
    ("make -f inc.mk", {"inc.mk": "-include later.mk\nall:\n\techo\n"}, "later.mk"),
    ("npm test", {"package.json": '{"scripts": {"test": "echo", "pretest": "sh pre.sh"}}', "pre.sh": "a\n"}, "pre.sh"),
    ("python3 -m pkg", {"pkg/__init__.py": "", "pkg/__main__.py": "import json, side\n", "side.py": ""}, "side.py"),
    ("python3 -m pkg", {"pkg/__init__.py": "", "pkg/__main__.py": "import json\n"}, "json.py"),
    ("python3 -m pkg.sub", {"pkg/__init__.py": "", "pkg/sub.py": ""}, "pkg/__init__.py"),
    ("python3 -m pip install x", {}, "idna.py"),
    ("python3 -m http.server", {}, "http/__init__.py"),
    ("python3 -m http.server", {}, "socketserver.py"),
    ("python3 t/a.py", {"t/a.py": "from .b import c\n", "t/b.py": ""}, "t/b.py"),
    ("python3 t/a.py", {"t/a.py": "from p.q import (\n    r,  # one\n    s,\n)\n", "t/p/q/s.py": ""}, "t/p/q/s.py"),
    ("python3 t/a.py", {"t/a.py": "def f():\n            import late\n", "t/late.py": ""}, "t/late.py"),
    ("python3 t/a.py", {"t/a.py": "import a.b.c\n"}, "t/a/b/__init__.py"),
    ("python3 t/a.py", {"t/a.py": "import p\n", "t/p/__init__.py": "import q\n", "t/q.py": ""}, "t/q.py"),
    ("python3 x.py", {}, "__pycache__/helper.cpython-311.pyc"),
    ("python3 x.py", {}, "yaml.py"),
    ("env -S 'sh t.sh'", {}, "t.sh"),
    ("su bob -c 'sh t.sh'", {}, "t.sh"),
    ("watch 'sh t.sh'", {}, "t.sh"),
    ("GIT_SSH_COMMAND='sh t.sh' git push", {}, "t.sh"),
    ("EDITOR=./run git commit", {}, "t.sh"),
    ("git rebase -x 'sh t.sh' main", {}, "t.sh"),
    ("git bisect run ./run", {}, "t.sh"),
    ("git -c alias.x='!sh t.sh' x", {}, "t.sh"),
    ("tmux new -d sh t.sh", {}, "t.sh"),
    ("foo --hook=./run", {}, "t.sh"),
    ("source ./outer.sh", {}, "t.sh"),
    ("cd conf && . ../outer.sh", {"conf/lib.sh": "x=1\n"}, "conf/lib.sh"),
]


@pytest.mark.parametrize(("command", "files", "changed"), CHANGED, ids=[f"{row[0]}, {row[2]}" for row in CHANGED])
def test_a_change_of_what_is_loaded_by_the_way_ends_the_right(work, command, files, changed):
    for name, text in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    before = find(work, command)
    (work / changed).parent.mkdir(parents=True, exist_ok=True)
    (work / changed).write_text("echo evil\n")
    assert find(work, command) != before


def test_a_link_or_a_rename_in_place_of_a_file_ends_the_right(work):
    before = find(work, "sh t.sh")
    (work / "evil.sh").write_text("evil\n")
    (work / "evil.sh").rename(work / "t.sh")
    assert find(work, "sh t.sh").digest != before.digest
    (work / "t.sh").unlink()
    (work / "t.sh").symlink_to("lib.sh")
    assert find(work, "sh t.sh").digest != before.digest
    (work / "t.sh").unlink()
    os.link(work / "lib.sh", work / "t.sh")
    assert find(work, "sh t.sh").digest != before.digest


UNSEEN = [
    ("make -C sub", {"sub/Makefile": "all:\n\tsh ../t.sh\n"}),
    ("make", {"Makefile": "include $(DIR)/x.mk\nall:\n\techo\n"}),
    ("make", {"Makefile": "all:\n\t$(MAKE) -C sub\n"}),
    ("make", {"Makefile": "all:\n\t@$(PYTHON) -m pkg\n"}),
    ("make", {"Makefile": "SHELL = ./sh\nall:\n\techo\n"}),
    ("make", {"Makefile": "export PATH := .:$(PATH)\nall:\n\techo\n"}),
    ("make", {"Makefile": "$(eval $(file <x.mk))\nall:\n\techo\n"}),
    ("make", {"Makefile": "load ./x.so\nall:\n\techo\n"}),
    ("make", {"Makefile": "include a.mk\nall:\n\techo\n", "a.mk": "load ./x.so\n"}),
    ("npm test -w pkg", {}),
    ("npm test --workspaces", {}),
    ("yarn test", {".yarnrc.yml": "yarnPath: .yarn/releases/yarn.cjs\n"}),
    ("pnpm test", {".pnpmfile.cjs": "evil\n"}),
    ("bun run test", {"bunfig.toml": "preload = ['./x.ts']\n"}),
    ("npm test", {".npmrc": "script-shell=./x\n"}),
    ("npm test", {".npmrc": "node-options=--require ./x.js\n"}),
    (".venv/bin/python x.py", {".venv/pyvenv.cfg": "", ".venv/bin/python": ""}),
    ("node web/x.js", {"web/node_modules/a/index.js": "", "web/x.js": "require('a')\n"}),
    ("cd web && node x.js", {"web/node_modules/a/index.js": "", "web/x.js": "require('a')\n"}),
    ("find . -name 't.sh' -exec {} ';'", {}),
    ("xargs -a list sh", {"list": "t.sh\n"}),
    ("xargs sh < list", {"list": "t.sh\n"}),
    ("parallel -a list", {"list": "./t.sh\n"}),
    ("perl -I. -Mx -e 1", {"x.pm": ""}),
    ("ruby -r./x -e 1", {"x.rb": ""}),
    ("git --exec-path=. push", {"git-push": ""}),
    ("vim -c 'source x.vim'", {"x.vim": ""}),
    ("uv run serve", {"pyproject.toml": ""}),
    ("gunicorn app:app", {"app.py": ""}),
    ("python3 -m flask run", {"app.py": ""}),
    ("webpack", {"webpack.config.js": ""}),
]


@pytest.mark.parametrize(("command", "files"), UNSEEN, ids=[str(row) for row in UNSEEN])
def test_a_command_with_code_that_it_does_not_name_has_no_standing_right(work, command, files):
    for name, text in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    assert find(work, command).unknown


def test_a_file_too_large_to_check_gives_no_standing_right(work):
    with open(work / "data.txt", "r+b") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    assert find(work, "scp data.txt host:").unknown == "data.txt is too large to check"


def test_the_content_is_shown_and_after_a_yes_what_changed(work):
    first = find(work, "sh outer.sh")
    assert format_files(first, str(work), {}).splitlines()[:2] == ["lib.sh:", "    x=1"]
    (work / "t.sh").write_text("echo one\necho evil\n")
    shown = format_files(find(work, "sh outer.sh"), str(work), first.texts)
    assert "lib.sh (as before)" in shown
    assert "t.sh, changed since your last yes:" in shown and "    +echo evil" in shown


def test_a_long_file_is_shown_with_its_start_and_end(work):
    (work / "t.sh").write_text("".join(f"echo {number}\n" for number in range(500)))
    shown = format_files(find(work, "sh t.sh"), str(work), {})
    assert "echo 0" in shown and "echo 499" in shown and f"{500 - MAX_SHOWN_LINES} more lines" in shown


def test_the_content_of_a_file_with_secrets_is_not_shown(work):
    found = find(work, "kubectl create x --from-env-file=.env")
    assert found.digest and "KEY" not in format_files(found, str(work), {})


class Person:
    """Answers, and does something first."""

    def __init__(self, *acts, answer="once"):
        self.acts, self.answer, self.asked = list(acts), answer, []

    async def __call__(self, call, risk, turn, files):
        self.asked.append((risk, files))
        if self.acts and (act := self.acts.pop(0)) is not None:
            return act() or self.answer
        return self.answer


async def test_a_file_that_changes_while_the_question_is_open_is_asked_about_again(work):
    person = Person(lambda: (work / "t.sh").write_text("evil\n") and None)
    hook = ApprovalGate(FileBoundary(places_of(work)), person, contained=lambda call, turn: True).before_tool
    assert await hook(terminal("sh t.sh"), turn(work)) is None
    assert ["evil" in files.text for _, files in person.asked] == [False, True]
    assert "asked again" in person.asked[1][0].reason


async def test_a_withdrawn_question_is_no_yes_even_if_the_file_is_as_shown_again(work):
    person = Person(QuestionWithdrawn, None, answer="no")
    hook = ApprovalGate(FileBoundary(places_of(work)), person, contained=lambda call, turn: True).before_tool
    assert (await hook(terminal("sh t.sh"), turn(work))).ruling == "deny"
    assert len(person.asked) == 2


async def test_a_file_that_keeps_changing_is_denied(work):
    person = Person(*[lambda: (work / "t.sh").write_text(os.urandom(4).hex()) and None] * 9)
    hook = ApprovalGate(FileBoundary(places_of(work)), person, contained=lambda call, turn: True).before_tool
    verdict = await hook(terminal("sh t.sh"), turn(work))
    assert verdict.ruling == "deny" and "keep changing" in verdict.reason


async def test_an_approved_command_does_not_start_with_other_content(work):
    check = CommandFileCheck(places_of(work))
    hook = ApprovalGate(
        FileBoundary(places_of(work)), Person(), contained=lambda call, turn: True, command_files=check
    ).before_tool
    context = SimpleNamespace(turn=turn(work), call_id="c")
    assert await hook(terminal("sh t.sh"), turn(work)) is None
    await check.check_start(context)
    assert await hook(terminal("sh t.sh"), turn(work)) is None
    (work / "t.sh").write_text("evil\n")
    with pytest.raises(ToolError, match="was changed after you were asked"):
        await check.check_start(context)


async def test_there_is_no_standing_right_while_a_command_runs_that_can_change_the_files(work, tmp_path):
    running, person = set[str](), Person()
    check = CommandFileCheck(places_of(work), list_folders=lambda: running)
    hook = ApprovalGate(
        FileBoundary(places_of(work)), person, contained=lambda call, turn: True, command_files=check
    ).before_tool
    for folders in (set(), {str(tmp_path / "other")}, {str(work)}):
        running |= folders
        await hook(terminal("sh t.sh"), turn(work))
    await hook(terminal("sudo rm t.sh"), turn(work))
    assert [files.once for _, files in person.asked] == ["", "", SHARED, ""]


async def test_a_command_in_the_sandbox_is_asked_about_by_its_words(work):
    person = Person()
    hook = ApprovalGate(FileBoundary(places_of(work)), person, contained=lambda call, turn: True).before_tool
    assert await hook(ToolCall("c", "terminal", {"command": "git push --force"}), turn(work)) is None
    assert person.asked[0][1] is None


async def test_a_pattern_does_not_cover_a_command_that_runs_files(work):
    person = Person()
    hook = ApprovalGate(FileBoundary(places_of(work)), person).before_tool
    for command in ("sudo sh t.sh", "sudo ls"):
        await hook(ToolCall("c", "terminal", {"command": command}), turn(work))
    assert [risk.exact for risk, _ in person.asked] == [True, False]
