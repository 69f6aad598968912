"""The command line's words become options, and wrong words end with status 2 and a way out."""

import re

import pytest

from alipes.cli import help_text
from alipes.cli import options as arguments
from alipes.cli.options import AskOptions, SessionsOptions, TalkOptions, Where


def refused(capsys, parse, *words):
    with pytest.raises(SystemExit) as left:
        parse(list(words))
    assert left.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    return told.err


def test_the_words_of_a_prompt_need_no_quotes_and_options_may_stand_anywhere():
    options = arguments.ask(["what", "is", "-m", "a/b", "this", "--json"])
    assert options == AskOptions("what is this", model="a/b", json=True)


def test_a_prompt_may_begin_with_a_dash_after_two_dashes():
    assert arguments.ask(["-q", "--", "-v", "means", "what?"]) == AskOptions("-v means what?", quiet=True)


def test_every_option_of_ask_arrives():
    words = ["-i", "a.png", "--image", "b.png", "--session", "work", "--yes", "-v", "look"]
    assert arguments.ask(words) == AskOptions(
        "look", Where("work"), images=("a.png", "b.png"), trusted=True, verbose=True
    )
    assert arguments.ask(["--continue", "go", "on"]).where == Where(latest=True)


def test_options_that_contradict_each_other_are_refused(capsys):
    assert "contradict" in refused(capsys, arguments.ask, "--session", "a", "--continue", "hi")
    assert "contradict" in refused(capsys, arguments.ask, "-q", "-v", "hi")
    assert "needs a name" in refused(capsys, arguments.ask, "--session", " ", "hi")


def test_a_wrong_option_is_named_and_the_help_is_pointed_to(capsys):
    told = refused(capsys, arguments.ask, "--jsn", "hi")
    assert "--jsn" in told and "alipes ask --help" in told
    assert len(told.splitlines()) == 2


def test_an_abbreviated_option_is_not_guessed(capsys):
    refused(capsys, arguments.ask, "--sess", "a", "hi")


def test_talking_takes_a_place_and_a_model():
    assert arguments.talk([]) == TalkOptions()
    assert arguments.talk(["-m", "x/y", "-c", "-y"]) == TalkOptions(Where(latest=True), "x/y", True)


def test_sessions_without_a_word_lists_them():
    assert arguments.sessions([]) == SessionsOptions("list")
    assert arguments.sessions(["--json"]) == SessionsOptions("list", json=True)
    assert arguments.sessions(["list", "-n", "3", "--json"]) == SessionsOptions("list", limit=3, json=True)


def test_sessions_search_takes_many_words_and_the_others_one_name(capsys):
    assert arguments.sessions(["search", "two", "words"]).name == "two words"
    assert arguments.sessions(["export", "x", "-f", "json", "-o", "y"]) == SessionsOptions(
        "export", "x", format="json", output="y"
    )
    assert "one NAME" in refused(capsys, arguments.sessions, "show", "a", "b")
    assert "needs a NAME" in refused(capsys, arguments.sessions, "delete")
    assert "words to look for" in refused(capsys, arguments.sessions, "search")
    assert "no such action: shw" in refused(capsys, arguments.sessions, "shw", "x")
    assert "takes no name" in refused(capsys, arguments.sessions, "list", "x")


@pytest.mark.parametrize("count", ["0", "-1", "many", "1.5"])
def test_a_limit_is_a_count(capsys, count):
    assert refused(capsys, arguments.sessions, "list", f"--limit={count}")


def test_doctor_and_backup():
    assert arguments.doctor(["--live"]).live and not arguments.doctor([]).live
    assert arguments.backup(["there.db"]) == "there.db"


@pytest.mark.parametrize(
    ("parse", "page"),
    [
        (arguments.ask, help_text.ASK),
        (arguments.talk, help_text.TOP),
        (arguments.sessions, help_text.SESSIONS),
        (arguments.doctor, help_text.DOCTOR),
        (arguments.backup, help_text.BACKUP),
    ],
)
def test_help_is_the_page_of_the_manual_and_names_only_options_that_exist(capsys, parse, page):
    with pytest.raises(SystemExit) as left:
        parse(["--help"])
    assert left.value.code == 0
    assert capsys.readouterr().out == page
    for option in set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", page, re.M)) - {"--version", "--help"}:
        try:
            parse([option])
        except SystemExit:
            assert "unrecognized" not in capsys.readouterr().err
