"""The text of an approval question shows all of the call, as it will run."""

import pytest

from alipes.kernel.approvals import FILE_ACCESS, NETWORK, CallText, describe_call, list_reasons, reveal
from alipes.kernel.messages import ToolCall
from alipes.kernel.tool_labels import describe_tool
from alipes.kernel.turns import ApprovalAsked


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ls -la 'é 日本'", "ls -la 'é 日本'"),
        ("two\n\tlines", "two\n\tlines"),
        ("rm \u202e x", "rm <U+202E> x"),
        ("a\u200bb", "a<U+200B>b"),
        ("\x1b[2Kls", "<U+001B>[2Kls"),
        ("ls\rrm", "ls<U+000D>rm"),
        ("no\u00a0break", "no<U+00A0>break"),
        ("a\u2028b", "a<U+2028>b"),
        ("x\u3164y", "x<U+3164>y"),
        ("f\ufe0fg", "f<U+FE0F>g"),
        ("\U000e0041", "<U+E0041>"),
        ("\udcff", "<U+DCFF>"),
        ("\x08\x7f", "<U+0008><U+007F>"),
    ],
)
def test_hidden_characters_are_made_visible(text, shown):
    assert reveal(text) == shown


def test_a_command_is_shown_with_its_other_arguments_and_its_folder():
    call = ToolCall("c", "terminal", {"command": "make\u202e", "background": True, "workdir": "/srv\x1b"})
    shown = describe_call(call, "/home/ann")
    assert shown.title == "Run this command?"
    assert shown.text == "make<U+202E>\nbackground: true\nworkdir: /srv<U+001B>\nfolder: /home/ann"


def test_code_and_other_tools_are_shown_whole():
    code = describe_call(ToolCall("c", "execute_code", {"code": "print(1)\n" * 500}))
    assert (code.title, code.body) == ("Run this code?", "print(1)\n" * 500)
    other = describe_call(ToolCall("c", "write_file", {"path": "a", "content": "x" * 9000}))
    assert (other.title, other.body) == ("Write a?", f"content: {'x' * 9000}")


def test_a_question_about_a_file_names_it():
    assert describe_call(ToolCall("c", "read_file", {"path": "~/.ssh/id_rsa"})) == CallText("Read ~/.ssh/id_rsa?", "")
    args = {"action": "write", "path": "~/p2/a.py", "folder": "~/p2"}
    asked = describe_call(ToolCall("c", FILE_ACCESS, args), "/w", "--- /dev/null\n+++ /h/p2/a.py\n@@ -0,0 +1 @@\n+x")
    assert (asked.title, asked.details) == ("Write ~/p2/a.py?", ("session, always: all of ~/p2",))
    assert asked.body.endswith("+x")
    assert describe_tool(ToolCall("c", FILE_ACCESS, args)).text == "Write ~/p2/a.py"
    command = ToolCall("c", "terminal", {"command": "cat x", "outside": True})
    assert describe_call(command).details == ("outside the sandbox, with your rights",)
    patch = ToolCall("c", "patch", {"mode": "patch", "patch": "..."})
    for diff, title in (("+++ b/a", "Change this file?"), ("+++ b/a\n+++ b/b", "Change these files?")):
        assert describe_call(patch, "/w", diff).title == title


@pytest.mark.parametrize(
    ("args", "title", "text"),
    [
        ({"host": "pypi.org", "port": 443}, "Allow a connection to pypi.org?", ""),
        ({"host": "pypi.org", "port": 8443}, "Allow a connection to pypi.org?", "port: 8443"),
        ({"host": "p\u0443pi.org", "port": 443}, "Allow a connection to p<U+0443>pi.org?", ""),
        (
            {"host": "pypi.org", "port": 443, "command": "curl https://pypi.org/\u202e"},
            "Allow a connection to pypi.org?",
            "Asked by: curl https://pypi.org/<U+202E>",
        ),
        (
            {"host": "github.com", "port": 22, "keys": True, "command": "git fetch"},
            "Allow a connection to github.com:22? It may use your SSH keys.",
            "Asked by: git fetch",
        ),
    ],
)
def test_a_connection_is_shown_by_its_host_and_the_command_that_asks(args, title, text):
    shown = describe_call(ToolCall("c", "network", args), "/home/ann")
    assert (shown.title, shown.text, shown.more) == (title, text, "")


def test_the_hosts_of_a_group_are_counted_and_listed_on_request():
    hosts = ["pypi.org", "files.pythonhosted.org"]
    args = {"host": "pypi.org", "group": "package registries", "hosts": hosts, "command": "pip install ruff"}
    shown = describe_call(ToolCall("c", "network", args))
    assert shown.title == "Allow a connection to pypi.org (package registries, 2 hosts)?"
    assert (shown.text, shown.more) == ("Asked by: pip install ruff", "pypi.org\nfiles.pythonhosted.org")


def test_a_signature_is_asked_about_with_its_server():
    shown = describe_call(ToolCall("c", "ssh_agent", {"host": "github.com", "port": 22}))
    assert shown.title == "Let this command use your SSH keys at github.com:22?"


@pytest.mark.parametrize(
    ("reason", "reasons"),
    [
        ("connects to x.example", []),
        ("connects to x.example. This conversation has read a page", ["This conversation has read a page"]),
        ("connects to pypi.org, a package registry; untrusted text was read", ["untrusted text was read"]),
    ],
)
def test_the_reason_of_a_connection_does_not_repeat_its_host(reason, reasons):
    host = ToolCall("c", NETWORK, {"host": "x.example", "port": 443})
    assert list_reasons(ApprovalAsked("a", host, reason, "network")) == reasons
    command = ToolCall("c", "terminal", {"command": "x"})
    assert list_reasons(ApprovalAsked("a", command, "connects to x; reads y.", "egress")) == [
        "connects to x",
        "reads y",
    ]
