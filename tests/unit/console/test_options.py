"""Parsing of command lines."""

import re

import pytest

from alipes.console import help_text
from alipes.console import options as arguments
from alipes.console.options import AskOptions, ConversationChoice, SessionsOptions, TalkOptions


def refused(capsys, parse, *words):
    with pytest.raises(SystemExit) as left:
        parse(list(words))
    assert left.value.code == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    return seen.err


def test_a_prompt_needs_no_quotes_and_options_may_be_anywhere():
    options = arguments.parse_ask(["what", "is", "-m", "a/b", "this", "--json"])
    assert options == AskOptions("what is this", model="a/b", json=True)


def test_a_prompt_may_start_with_a_dash_after_two_dashes():
    assert arguments.parse_ask(["-q", "--", "-v", "means", "what?"]) == AskOptions("-v means what?", quiet=True)


def test_every_option_of_ask_is_parsed():
    words = ["-i", "a.png", "--image", "b.png", "--session", "work", "--yes", "-v", "look"]
    assert arguments.parse_ask(words) == AskOptions(
        "look", ConversationChoice("work"), images=("a.png", "b.png"), trusted=True, verbose=True
    )
    assert arguments.parse_ask(["--continue", "go", "on"]).conversation == ConversationChoice(latest=True)


def test_contradicting_options_are_refused(capsys):
    assert "use either" in refused(capsys, arguments.parse_ask, "--session", "a", "--continue", "hi")
    assert "use either" in refused(capsys, arguments.parse_ask, "-q", "-v", "hi")
    assert "needs a name" in refused(capsys, arguments.parse_ask, "--session", " ", "hi")


def test_a_wrong_option_is_named_with_a_hint_at_the_help(capsys):
    seen = refused(capsys, arguments.parse_ask, "--jsn", "hi")
    assert "--jsn" in seen and "alipes ask --help" in seen
    assert len(seen.splitlines()) == 2


def test_an_abbreviated_option_is_not_guessed(capsys):
    refused(capsys, arguments.parse_ask, "--sess", "a", "hi")


def test_talk_takes_a_conversation_and_a_model():
    assert arguments.parse_talk([]) == TalkOptions()
    assert arguments.parse_talk(["-m", "x/y", "-c", "-y"]) == TalkOptions(ConversationChoice(latest=True), "x/y", True)


def test_sessions_without_an_action_lists_them():
    assert arguments.parse_sessions([]) == SessionsOptions("list")
    assert arguments.parse_sessions(["--json"]) == SessionsOptions("list", json=True)
    assert arguments.parse_sessions(["list", "-n", "3", "--json"]) == SessionsOptions("list", limit=3, json=True)


def test_sessions_search_takes_many_words_and_the_others_one_name(capsys):
    assert arguments.parse_sessions(["search", "two", "words"]).name == "two words"
    assert arguments.parse_sessions(["export", "x", "-f", "json", "-o", "y"]) == SessionsOptions(
        "export", "x", format="json", output="y"
    )
    assert "one NAME" in refused(capsys, arguments.parse_sessions, "show", "a", "b")
    assert "needs a NAME" in refused(capsys, arguments.parse_sessions, "delete")
    assert "search words" in refused(capsys, arguments.parse_sessions, "search")
    assert "unknown action: shw" in refused(capsys, arguments.parse_sessions, "shw", "x")
    assert "takes no NAME" in refused(capsys, arguments.parse_sessions, "list", "x")


@pytest.mark.parametrize("count", ["0", "-1", "many", "1.5"])
def test_a_limit_is_a_positive_number(capsys, count):
    assert refused(capsys, arguments.parse_sessions, "list", f"--limit={count}")


def test_doctor_options():
    assert arguments.parse_doctor(["--live"]).live and not arguments.parse_doctor([]).live


@pytest.mark.parametrize(
    ("parse", "page"),
    [
        (arguments.parse_ask, help_text.ASK),
        (arguments.parse_talk, help_text.TOP),
        (arguments.parse_sessions, help_text.SESSIONS),
        (arguments.parse_doctor, help_text.DOCTOR),
    ],
)
def test_help_prints_the_page_and_names_only_existing_options(capsys, parse, page):
    with pytest.raises(SystemExit) as left:
        parse(["--help"])
    assert left.value.code == 0
    assert capsys.readouterr().out == page
    for option in set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", page, re.M)) - {"--version", "--help"}:
        try:
            parse([option])
        except SystemExit:
            assert "unrecognized" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "before"),
    [
        (["-m", "a/b", "ask", "hi"], 2),
        (["--model=a/b", "-c", "hi"], 2),
        (["-r", "name", "hi", "there"], 2),
        (["-r", "-c"], 2),
        (["-i", "x.png", "-q", "what?"], 3),
        (["-y", "--", "-v", "means?"], 1),
        (["-p"], 1),
    ],
)
def test_options_before_a_command_or_question_are_separated(words, before):
    assert arguments.split_words(words) == (words[:before], words[before:])


def test_resume_takes_a_name_or_asks_for_one():
    assert arguments.parse_talk(["-r", "work"]).conversation == ConversationChoice(resume="work")
    assert arguments.parse_talk(["-r"]).conversation == ConversationChoice(pick=True)
    assert arguments.parse_talk(["--resume=work", "--plain"]) == TalkOptions(
        ConversationChoice(resume="work"), plain=True
    )
    assert arguments.parse_ask(["-r", "work", "hi"]).conversation == ConversationChoice(resume="work")


def test_resume_and_continue_exclude_each_other(capsys):
    assert "use either" in refused(capsys, arguments.parse_talk, "-c", "-r")
    assert "use either" in refused(capsys, arguments.parse_talk, "--session", "a", "-r", "b")
