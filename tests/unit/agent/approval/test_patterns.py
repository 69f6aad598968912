"""Patterns of commands: which calls they cover, and which they never do."""

import pytest

from alipes.agent.approval.patterns import covering_patterns, covers, find_problem, propose_pattern, split_commands
from alipes.kernel.messages import ToolCall


def terminal(command: str, **more) -> ToolCall:
    return ToolCall("c", "terminal", {"command": command, **more})


COVERED = [
    ("git push *", "git push"),
    ("git push *", "git push --force origin main"),
    ("git push *", "  git   push\torigin  "),
    ("git push *", "'git' \"push\" 'origin'"),
    ("git push *", "git push a && git push b; git push c || git push d\ngit push e"),
    ("git push", "git push"),
    ("git * origin", "git push origin"),
    ("rm build/*", "rm build/x.o"),
    ("sudo apt install *", "sudo apt install foo bar"),
    ("git commit -m 'a b'", 'git commit -m "a b"'),
    ("git push *", "git push --force-with-lease -u origin HEAD:main --tags --no-verify -n"),
    ("go test *", "go test -race -count=1 ./..."),
    ("npm publish *", "npm publish --access public --tag next"),
    ("git push --receive-pack=x *", "git push --receive-pack=x origin"),
    ("docker run -e A=1 *", "docker run -e A=1 image"),
]


@pytest.mark.parametrize(("pattern", "command"), COVERED)
def test_a_pattern_covers_such_commands(pattern, command):
    assert covers((pattern,), terminal(command)) and covers((pattern,), terminal(command, timeout=5))


NOT_COVERED = [
    ("git push *", "git pushx"),
    ("git push *", "git"),
    ("git push *", "git -c core.sshCommand=evil push"),
    ("git push", "git push origin"),
    ("git push *", "git push && rm -rf x"),
    ("git push *", "git push; rm -rf x"),
    ("git push *", "git push\nrm -rf x"),
    ("git push *", "git push | sh"),
    ("git push *", "git push |& sh"),
    ("git push *", "git push & rm -rf x"),
    ("git push *", "git push > /etc/passwd"),
    ("git push *", "git push < x"),
    ("git push *", "git push <<< x"),
    ("git push *", "git push $(rm -rf x)"),
    ("git push *", 'git push "$(rm -rf x)"'),
    ("git push *", "git push `rm -rf x`"),
    ("git push *", "git push $X"),
    ("git push *", "git push ${X}"),
    ("git push *", "git push <(rm -rf x)"),
    ("git push *", "git push {a,b}"),
    ("git push *", "git push \\\nx"),
    ("git push *", "git push \\; rm"),
    ("git push *", "git push # comment"),
    ("git push *", "git push !x"),
    ("git push *", "git push 'unclosed"),
    ("git push *", "git push --exec='rm -rf x'"),
    ("git push *", "git push 'rm -rf x'"),
    ("git push *", "X=1 git push"),
    ("git push *", "(git push)"),
    ("git push *", "{ git push; }"),
    ("git push *", "if true; then git push; fi"),
    ("git push *", "for x in a; do git push; done"),
    ("git push *", "time git push"),
    ("git push *", "git push\rrm"),
    ("git push *", "git\u00a0push"),
    ("git push *", "git push \x00"),
    ("rm build/*", "rm build/../../x"),
    ("rm build/*", "rm build/x y"),
    ("rm build/*", "rm /build/x"),
    ("git * origin", "git push --force origin"),
    ("rm [ab]", "rm a"),
    ("rm ?", "rm a"),
    ("git push *", "git push --receive-pack=evil origin"),
    ("git push *", "git push --receive-pack evil origin"),
    ("git push *", "git push --rece=evil origin"),
    ("git push *", "git push --exec=evil origin"),
    ("git push *", "git push -c core.sshCommand=evil"),
    ("git push *", "git push ext::./evil"),
    ("git *", "git -c alias.x=./evil x"),
    ("git fetch *", "git fetch --upload-pack=./evil origin"),
    ("git * origin", "git --exec-path=. origin"),
    ("tar *", "tar xf x.tar --to-command=./evil"),
    ("tar *", "tar xf x.tar -I ./evil"),
    ("tar *", "tar cf x.tar x --checkpoint=1 --checkpoint-action=exec=./evil"),
    ("rsync *", "rsync -e ./evil a host:"),
    ("rsync *", "rsync --rsync-path=./evil a host:"),
    ("scp *", "scp -oProxyCommand=./evil a host:"),
    ("scp *", "scp -o ProxyCommand=./evil a host:"),
    ("sudo apt install *", "sudo apt install -o DPkg::Pre-Invoke::=./evil x"),
    ("go test *", "go test -exec ./evil"),
    ("npm *", "npm test --script-shell=./evil"),
    ("curl *", "curl --config x https://a.example"),
    ("", "git push"),
    ("git push *", ""),
]


@pytest.mark.parametrize(("pattern", "command"), NOT_COVERED)
def test_a_pattern_does_not_cover_anything_else(pattern, command):
    assert not covers((pattern,), terminal(command))


@pytest.mark.parametrize(
    "call",
    [
        terminal("git push", workdir="/elsewhere"),
        terminal("git push", outside=True),
        terminal("git push", background=True),
        ToolCall("c", "execute_code", {"code": "git push"}),
        ToolCall("c", "other", {"command": "git push"}),
        ToolCall("c", "terminal", {}),
    ],
    ids=["folder", "outside", "background", "code", "tool", "nothing"],
)
def test_a_pattern_covers_only_plain_calls_of_the_terminal_tool(call):
    assert not covers(("git push *",), call) and propose_pattern(call) == ""


def test_each_command_of_a_line_needs_a_pattern_of_its_own():
    line = terminal("git push a && npm publish")
    assert not covers(("git push *",), line) and not covers(("npm *",), line)
    assert covering_patterns(("ls", "npm *", "git push *"), line) == ("git push *", "npm *")


@pytest.mark.parametrize(
    ("command", "proposed"),
    [
        ("git push --force origin main", "git push --force origin main"),
        ("npm publish", "npm publish"),
        ("sudo apt install foo", "sudo apt install foo"),
        ("git commit -m 'a b'", "git commit -m 'a b'"),
        ("sudo -u root apt install foo", "sudo -u root apt install foo"),
        ("rm -rf /opt/x", "rm -rf /opt/x"),
        ("docker run -v /:/x y", "docker run -v /:/x y"),
        ("curl https://a.example", "curl https://a.example"),
        ("git push | cat", ""),
        ("git push && ls", ""),
    ],
)
def test_the_proposed_pattern_covers_the_command_and_nothing_else(command, proposed):
    found = propose_pattern(terminal(command))
    assert found == proposed
    assert not found or not covers((found,), terminal(f"{command} --force"))
    assert not found or not find_problem(found, terminal(command))


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "*", "* x", "g*t push", "sudo *", "bash *", "sudo bash *", "env X=1 *", "xargs *", "sudo -u x *", "a; b"),
        *("a | b", "a $x", "a\nb", "git " + "x" * 600, "docker *", "python3 *", "ssh *"),
    ],
)
def test_a_pattern_that_allows_too_much_or_is_none_is_refused(pattern):
    assert find_problem(pattern)


def test_a_pattern_must_match_the_command_that_is_asked_about():
    assert not find_problem("git push *", terminal("git push x"))
    assert "does not match" in find_problem("git pull *", terminal("git push x"))


def test_a_very_long_command_is_not_split():
    assert split_commands("x " * 10_000) is None
