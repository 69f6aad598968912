"""Approval rules against a corpus of shell tricks, and the parser against bash itself."""

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from alipes.agent.approval.shell.host.rules import judge
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.sessions.questions import rule_for
from alipes.tools.common import Places
from tests.world.environment import LIMIT_S
from tests.world.shell_tricks import HARMLESS, TRICKS

WRAPPERS = ("ls; {}", "true && {}", "({}\n)", "if true; then {}\nfi", "f() {{ {}\n}}; f", "for i in 1; do {}\ndone")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A home with secrets, and a project beside it."""
    root = Path(os.path.realpath(tmp_path_factory.mktemp("tricks")))
    own, work = root / "home" / ".alipes", root / "work"
    for folder in (own / "spill", own / "run", root / "home" / ".ssh", work / ".git", work / "src"):
        folder.mkdir(parents=True)
    for path in (own / ".env", own / "alipes.db", own / "config.toml", root / "home/.ssh/id_rsa"):
        path.write_text("canary")
    return Places(home=str(root / "home"), alipes_home=str(own), scratch=("/tmp/scratch",)), str(work)


@pytest.mark.parametrize(
    "text",
    [
        'case x in "`rm -rf ~`") :;; esac',
        "case x in a) :;; `rm -rf ~`) :;; esac",
        "echo a \\\r\n rm -rf ~",
        "while true; do\\\n rm -rf ~; done",
        "if true; th\\\nen rm -rf ~; fi",
        'echo "${X:-$\\\n(rm -rf ~)}"',
    ],
)
def test_case_patterns_and_continued_keywords_hide_nothing(world, text):
    assert judge(text, *world) is not None


@pytest.mark.parametrize("text", ["ls\\\n -l", "ls \\\n  -l src", "case x in a|b) ls;; *) pwd;; esac"])
def test_continued_lines_and_plain_case_patterns_need_no_approval(world, text):
    assert judge(text, *world) is None


def test_every_trick_needs_approval(world):
    assert [each for each in TRICKS if judge(each, *world) is None] == []


def test_harmless_look_alikes_need_no_approval(world):
    assert [(each, risk) for each in HARMLESS if (risk := judge(each, *world)) is not None] == []


@settings(max_examples=200, deadline=None)
@given(trick=some.sampled_from(TRICKS), wrapper=some.sampled_from(WRAPPERS))
def test_no_wrapping_hides_a_trick(world, trick, wrapper):
    assert judge(wrapper.format(trick), *world) is not None, (wrapper, trick)


@settings(max_examples=200, deadline=None)
@given(trick=some.sampled_from(TRICKS), harmless=some.sampled_from(HARMLESS))
def test_a_harmless_command_before_it_hides_no_trick(world, trick, harmless):
    assert judge(f"{harmless}\n{trick}", *world) is not None, (harmless, trick)


def turn(workdir: str = "/here") -> Turn:
    return Turn("t", "s", Inbound("i", Address("cli", "c"), "me", "hi", workdir=workdir))


@settings(max_examples=300, deadline=None)
@given(
    one=some.sampled_from(TRICKS),
    other=some.sampled_from(TRICKS),
    more=some.sampled_from(["", " ", "\n", "#", ";ls", " -x", "\u200b", "\0", "'", '"', "}", '","workdir":"/']),
    folder=some.sampled_from(["/here", "/here/", "/here in /", "", "/"]),
)
def test_always_covers_only_that_call_in_that_folder(one, other, more, folder):
    given = rule_for(ToolCall("c", "terminal", {"command": one}), turn())
    for name, args, where in (
        ("terminal", {"command": one + more}, folder),
        ("terminal", {"command": other}, folder),
        ("terminal", {"command": one, "workdir": "/"}, "/here"),
        ("terminal", {"command": one, "background": True}, "/here"),
        ("execute_code", {"command": one}, "/here"),
        ("execute_code", {"code": one}, "/here"),
    ):
        same = (name, args, where) == ("terminal", {"command": one}, "/here")
        assert (rule_for(ToolCall("d", name, args), turn(where)) == given) is same


@pytest.mark.parametrize(
    "unit", ["env ", "nice timeout 5 ", "rm ", "sh -c ", "x 'y \"z (a b)\"' ", "xargs ", "'a=b c' "]
)
def test_text_with_many_interpretations_is_judged_quickly(world, unit):
    began = time.process_time()
    judge("x " + unit * 300, *world)
    judge(unit * 300 + "ls", *world)
    assert time.process_time() - began < LIMIT_S / 3


PIECES = (
    *("halt", " ", "\n", ";", "&&", "||", "|", "'", '"', "`", "$(", ")", "(", "{ ", "; }", "\\", "$X", "${X:-", "}"),
    *("<<E", "<<'E'", "<<-E", "\nE\n", "#", "x=", "case x in ", "esac", ";;", "x)", "if ", "then ", "fi", "do "),
    *("done", "\x0c", "\u00a0", "<x", ">f", "$'", "[[ ", " ]]", "((", "))", "$((", "{a,b}", "&", "!", '$"', "f() "),
)
SCRIPTS = (
    "echo 'a b'; halt",
    "cat <<E\nhi\nE\nhalt",
    "cat <<'E'\n$X\nE\nhalt",
    "echo $(echo a); halt",
    "echo a # it's\nhalt",
    "case x in a|b) :;; *) halt;; esac",
    "echo ${X#\\'}; halt",
    "if [[ a =~ ^(a|b)$ ]]; then halt; fi",
    "echo $(cat <<E\n)\nE\n); halt",
    "echo $'a\\'b'; halt",
    "f() { halt; }; f",
    "ha''lt",
)


@settings(max_examples=400, deadline=None)
@given(
    script=some.sampled_from(SCRIPTS),
    changes=some.lists(some.tuples(some.integers(0, 40), some.sampled_from(PIECES)), max_size=4),
)
def test_everything_bash_runs_was_seen_by_the_parser(world, tmp_path_factory, script, changes):
    for at, piece in changes:
        script = script[:at] + piece + script[at:]
    if judge(script, *world) is not None:
        return
    folder = tmp_path_factory.mktemp("bash", numbered=True)
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            ["/bin/bash", "--norc", "-c", script],
            cwd=folder,
            env={"PATH": "", "BASH_FUNC_halt%%": f"() {{ echo > {folder}/ran; }}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=5,
        )
    assert not (folder / "ran").exists(), script
