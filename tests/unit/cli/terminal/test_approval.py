"""The approval prompt shows everything, and stray keys do not answer it."""

import pytest
from msgspec import structs

from alipes.cli.terminal.input.approval import KEY_PAUSE_S, MAX_COMMAND_ROWS, ApprovalPrompt
from alipes.cli.terminal.transcript.transcript_view import TranscriptView
from alipes.console.screen_diff import strip_escapes
from alipes.console.styles import make_style
from alipes.console.theme import make_theme
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import ApprovalAnswered, ApprovalAsked

LOOK = make_style("none")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def dialogue(clock):
    return ApprovalPrompt(clock)


def asked(
    ask: str = "1", command: str = "sudo make install", *, reason: str = "runs as another user", pattern: str = ""
) -> ApprovalAsked:
    return ApprovalAsked(ask, ToolCall("c", "terminal", {"command": command}), reason, "rule", pattern=pattern)


def rows(dialogue: ApprovalPrompt, columns: int = 80, *, typing: bool = False) -> list[str]:
    return [strip_escapes(row) for row in dialogue.rows(columns, LOOK, typing=typing)]


def test_it_shows_the_command_the_reason_and_the_keys(dialogue):
    assert rows(dialogue) == []
    dialogue.ask(asked())
    assert rows(dialogue) == [
        "? Run this command?",
        "    sudo make install",
        "  Why: runs as another user",
        " ▸1 [y] once  2 [s] session  3 [a] always  4 [n] no  5 [e] no, because ...",
    ]
    assert rows(dialogue, typing=True)[-2] == "  Press Esc to clear your text first, then press a key."


@pytest.mark.parametrize("columns", [30, 40, 60])
def test_every_key_is_visible_in_a_narrow_window(dialogue, columns):
    dialogue.ask(asked(pattern="sudo make *"))
    for typing in (False, True):
        shown = rows(dialogue, columns, typing=typing)
        assert max(map(len, shown)) <= columns
        assert all(f"[{key}]" in "\n".join(shown) for key in "ysapne")


def test_all_reasons_are_shown(dialogue):
    dialogue.ask(asked(reason="uses sudo; deletes everything in /x; runs what it downloads"))
    assert rows(dialogue)[2:5] == [
        "  Why: uses sudo",
        "       deletes everything in /x",
        "       runs what it downloads",
    ]


def test_a_pattern_is_edited_before_it_is_saved(dialogue):
    dialogue.ask(asked(pattern="sudo make *"))
    assert dialogue.begin_entry("pattern") == "sudo make *" and dialogue.entry == "pattern"
    assert "Enter saves, Esc goes back" in rows(dialogue)[-1]
    assert dialogue.end_entry("git *") is None and "`git *` does not match this command." in "\n".join(rows(dialogue))
    assert dialogue.end_entry(" sudo make install ") == ("1", "always", "sudo make install", "") and not dialogue.entry


def test_a_denial_can_say_why(dialogue):
    dialogue.ask(asked())
    assert dialogue.begin_entry("note") == ""
    assert dialogue.end_entry("use the test server") == ("1", "no", "", "use the test server")


def test_a_call_without_a_pattern_has_no_key_for_it(dialogue):
    dialogue.ask(asked())
    assert dialogue.begin_entry("pattern") == "" and not dialogue.entry
    assert "[p]" not in rows(dialogue)[-1] and "A pattern can't allow this one." in "\n".join(rows(dialogue))


def test_a_write_shows_what_would_change(dialogue):
    call = ToolCall("c", "write_file", {"path": ".envrc", "content": "b\n"})
    diff = "--- a/.envrc\n+++ b/.envrc\n@@ -1 +1 @@\n-a\n+b"
    dialogue.ask(ApprovalAsked("1", call, "changes .envrc", "rule", "/w", diff))
    assert rows(dialogue)[:5] == ["? Change this file?", *("    .envrc", "    1 - a", "    1 + b"), "    folder: /w"]


def test_a_key_answers_only_after_a_pause(dialogue, clock):
    assert not dialogue.accepts_keys
    dialogue.ask(asked())
    assert not dialogue.accepts_keys
    clock.now += KEY_PAUSE_S
    assert dialogue.accepts_keys
    dialogue.key_pressed()
    clock.now += KEY_PAUSE_S / 2
    assert not dialogue.accepts_keys


def test_an_answer_to_one_question_does_not_answer_the_next(dialogue, clock):
    dialogue.ask(asked("1"))
    dialogue.ask(asked("2", "sudo reboot"))
    dialogue.ask(asked("1"))
    assert "(1 more)" in rows(dialogue)[-1]
    clock.now += 10
    dialogue.close("1")
    assert dialogue.current is not None and dialogue.current.ask == "2" and not dialogue.accepts_keys
    clock.now += KEY_PAUSE_S
    assert dialogue.accepts_keys
    dialogue.close("unknown")
    dialogue.clear()
    assert dialogue.current is None and rows(dialogue) == []


LONG = "\n".join(f"echo {number}" for number in range(100)) + "\n\x1b[2Jsudo rm"


def test_a_long_command_is_shown_whole_in_the_transcript_and_shortened_in_the_prompt(dialogue):
    dialogue.ask(asked(command=LONG))
    shown = rows(dialogue)
    assert shown[1:3] == ["    echo 0", "    echo 1"] and shown[-3] == "    <U+001B>[2Jsudo rm"
    assert len(shown) == MAX_COMMAND_ROWS + 3 and any("90 more lines, all shown above" in row for row in shown)
    transcript = TranscriptView(make_theme("none"), LOOK, 80)
    for _ in range(2):
        transcript.handle_event(asked(command=LONG))
    printed = [strip_escapes(row) for row in transcript.take_final()]
    assert printed == [*(f"    echo {number}" for number in range(100)), "    <U+001B>[2Jsudo rm"]


def test_a_short_command_is_not_repeated_in_the_transcript():
    transcript = TranscriptView(make_theme("none"), LOOK, 80)
    transcript.handle_event(asked())
    assert transcript.take_final() == []


def test_a_command_with_long_lines_is_shown_whole(dialogue):
    dialogue.ask(asked(command="x" * 100))
    assert rows(dialogue, 40)[1:5] == [
        "    " + "x" * 36,
        "    " + "x" * 36,
        "    " + "x" * 28,
        "  Why: runs as another user",
    ]


def test_other_tools_show_all_arguments(dialogue):
    call = ToolCall("c", "write_file", {"path": "/etc/passwd", "content": "x\ny"})
    dialogue.ask(ApprovalAsked("1", call, "changes the system", "rule"))
    assert rows(dialogue)[:3] == ["? Write /etc/passwd?", "    content: x", "    y"]


def test_arguments_that_change_a_command_and_its_folder_are_shown(dialogue):
    call = ToolCall("c", "terminal", {"command": "make", "background": True, "workdir": "/srv"})
    dialogue.ask(ApprovalAsked("1", call, "runs as root", "rule", "/home/ann"))
    assert rows(dialogue)[1:5] == ["    make", "    background: true", "    workdir: /srv", "    folder: /home/ann"]


def test_a_connection_is_asked_about_by_host(dialogue):
    call = ToolCall("c", "network", {"host": "pypi.org", "port": 443})
    dialogue.ask(ApprovalAsked("1", call, "pip install rich", "connect to pypi.org"))
    assert rows(dialogue)[:2] == ["? Allow a connection to pypi.org?", "  Why: pip install rich"]


def test_a_decision_about_a_connection_names_the_host():
    transcript = TranscriptView(make_theme("none"), LOOK, 80)
    call = ToolCall("c", "network", {"host": "pypi.org", "port": 443})
    transcript.handle_event(ApprovalAsked("1", call, "pip install rich", "connect to pypi.org"))
    transcript.handle_event(ApprovalAnswered("1", "no"))
    assert [strip_escapes(row) for row in transcript.take_final()] == ["· denied: a connection to pypi.org"]


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (ApprovalAnswered("1", "once"), ["· approved once: sudo make install"]),
        (ApprovalAnswered("1", "always"), ["· always allowed: sudo make install"]),
        (
            ApprovalAnswered("1", "always", pattern="sudo make *"),
            ["· always allowed: sudo make * (now: sudo make install)"],
        ),
        (ApprovalAnswered("1", "no"), ["· denied: sudo make install"]),
        (ApprovalAnswered("1", "no", note="not today"), ["· denied: sudo make install", "  because: not today"]),
        (ApprovalAnswered("1", "no", "stop"), []),
    ],
    ids=["once", "always", "pattern", "no", "because", "stop"],
)
def test_the_transcript_says_what_was_decided(answer, note):
    transcript = TranscriptView(make_theme("none"), LOOK, 80)
    transcript.handle_event(asked())
    transcript.handle_event(answer)
    assert [strip_escapes(row) for row in transcript.take_final()] == note


def test_the_whole_command_stays_in_the_transcript_after_the_decision():
    transcript = TranscriptView(make_theme("none"), LOOK, 40)
    command = "sudo make install " + " ".join(f"OPTION_{number}=value" for number in range(20))
    transcript.handle_event(asked(command=command))
    transcript.handle_event(ApprovalAnswered("1", "once"))
    printed = " ".join(strip_escapes(row).strip() for row in transcript.take_final())
    assert printed == f"· approved once: {command}"


def test_the_end_of_a_turn_removes_only_its_own_questions(dialogue):
    first, second = asked(), structs.replace(asked(), ask="another")
    dialogue.ask(first, "turn")
    dialogue.ask(second, "subagent in the background")
    dialogue.clear("turn")
    assert dialogue.current is second
    dialogue.close("another")
    assert dialogue.current is None


def test_a_connection_to_a_group_takes_three_rows_and_names_the_command(dialogue):
    hosts = ["pypi.org", *(f"registry{number}.example" for number in range(23))]
    args = {"host": "pypi.org", "group": "package registries", "hosts": hosts, "command": "pip install ruff"}
    reason = "connects to pypi.org, a package registry; untrusted text was read"
    question = ApprovalAsked("1", ToolCall("c", "network", args), reason, "package registries pypi.org")
    dialogue.ask(question)
    assert rows(dialogue)[:-1] == [
        "? Allow a connection to pypi.org (package registries, 24 hosts)?",
        "    Asked by: pip install ruff",
        "    Ctrl-O lists the hosts that a yes allows.",
        "  Why: untrusted text was read",
    ]
    transcript = TranscriptView(make_theme("none"), LOOK, 80)
    transcript.handle_event(question)
    assert transcript.take_final() == []
    assert transcript.expand_last() and "registry22.example" in "".join(transcript.take_final())
    transcript.handle_event(ApprovalAnswered("1", "session"))
    decided = "· approved for this session: a connection to pypi.org (package registries, 24 hosts)"
    assert " ".join(row.strip() for row in transcript.take_final()).strip() == decided


def test_a_decision_about_a_file_names_what_is_done_with_it():
    transcript = TranscriptView(make_theme("none"), LOOK, 80)
    for name, args in (("read_file", {"path": "~/.ssh/id_rsa"}), ("write_file", {"path": "a.json", "content": "{}"})):
        transcript.handle_event(ApprovalAsked("1", ToolCall("c", name, args), "why", "rule"))
        transcript.handle_event(ApprovalAnswered("1", "once" if name == "read_file" else "no"))
    assert transcript.take_final() == ["· approved once: Read ~/.ssh/id_rsa", "· denied: Write a.json"]
