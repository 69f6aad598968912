"""What chats are owed for what turns tell: everything once, nothing beyond, and only files that may leave."""

import pytest

from alipes.gateway.outbound.owed import Owing
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult, assistant, user
from alipes.kernel.turns import Address, Inbound, Said, ToolStarted, Turn, TurnEnded
from alipes.tools.common import Places


def turn(platform="telegram", **more):
    inbound = Inbound("1", Address(platform, "me"), "me", "hello", reply_to="77")
    return Turn("t1", "s", inbound, **more)


def said(text, *calls):
    return Said(assistant(Text(text), *calls))


CALL = ToolCall("c1", "hand", {})


def test_every_text_is_owed_as_it_is_said_with_numbers_of_its_own():
    owes, here = Owing(["telegram"]), turn()
    assert owes(here, Said(user("hello"))) == ()
    (first,) = owes(here, said("let me look", CALL))
    assert owes(here, ToolStarted(CALL)) == ()
    assert owes(here, Said(Message("tool", (ToolResult("c1", "x"),)))) == ()
    (second,) = owes(here, said("done"))
    assert (first.id, first.text, first.reply_to, first.turn) == ("t1:0", "let me look", "77", "t1")
    assert (second.id, second.text) == ("t1:2", "done")
    assert owes(here, said("  ", CALL)) == ()


def test_a_resumed_turn_goes_on_counting_where_it_was_cut_off():
    before = (user("hello"), assistant(Text("let me look"), CALL), user("steered"))
    owes = Owing(["telegram"])
    (again,) = owes(turn(said=before, epoch=2), said("done"))
    assert again.id == "t1:1"
    (fresh,) = Owing(["telegram"])(turn(said=before, epoch=3), said("done"))
    assert fresh.id == "t1:1", "the same words of the same turn are the same debt"


@pytest.mark.parametrize(
    ("ending", "detail", "words"),
    [
        ("answered", "", ""),
        ("failed", "no credit", "It failed: no credit"),
        ("failed", "", "It failed."),
        ("out_of_steps", "stopped at the limit of 50 steps", "I stopped at the limit of 50 steps."),
        ("stopped", "user_stop", ""),
        ("stopped", "superseded", ""),
        ("stopped", "timeout", "Nothing happened for a long time, so it was stopped."),
        ("steered", "t0", ""),
    ],
)
def test_an_end_is_told_where_nobody_else_tells_it(ending, detail, words):
    owed = Owing(["telegram"])(turn(), TurnEnded("t1", ending, detail))
    assert [(each.id, each.text) for each in owed] == ([("t1:end", words)] if words else [])


def test_other_surfaces_are_owed_nothing():
    heard = []
    owes = Owing(["telegram"])
    owes.heard = lambda turn, owed: heard.append(owed)
    assert owes(turn("terminal"), said("hi")) == () and heard == []
    owes(turn(), Said(user("hello")))
    assert heard == [None]
    owed = owes(turn(), said("hi"))
    assert heard == [None, owed] and owed


def test_files_that_are_named_go_along_if_they_may(tmp_path):
    folder = tmp_path / "media"
    folder.mkdir()
    for name in ("a.png", "b.ogg", "c.pdf"):
        (folder / name).write_text("x")
    (tmp_path / "secret.env").write_text("x")
    (folder / "link.png").symlink_to(tmp_path / "secret.env")
    owes = Owing(["telegram"], [str(folder)])
    text = f"Look:\n![a cat]({folder}/a.png)\nMEDIA: {folder}/b.ogg\nMEDIA:{folder}/c.pdf\n"
    (owed,) = owes(turn(), said(text))
    assert owed.text == "Look:"
    assert [(each.kind, each.name, each.caption) for each in owed.media] == [
        ("voice", "b.ogg", ""),
        ("file", "c.pdf", ""),
        ("image", "a.png", "a cat"),
    ]
    for path in (
        tmp_path / "secret.env",
        folder / "link.png",
        folder / "gone.png",
        folder / ".." / "secret.env",
    ):
        (owed,) = owes(turn(epoch=2), said(f"MEDIA:{path}"))
        assert owed.media == () and owed.text == f"MEDIA:{path}"
    assert Owing(["telegram"])(turn(), said(text))[0].media == ()


def test_what_a_tool_made_is_owed_with_its_result_and_takes_no_drafts_place(tmp_path):
    (tmp_path / "a.png").write_text("x")
    owes = Owing(["telegram"], [str(tmp_path)])
    made = ToolResult("c1", f"painted\nMEDIA:{tmp_path}/a.png")
    failed = ToolResult("c2", f"MEDIA:{tmp_path}/a.png", "failed")
    (owed,) = owes(turn(), Said(Message("tool", (made, failed))))
    assert len(owed.media) == 1 and owed.text == "" and owed.turn == ""
    repeated = said(f"Here it is.\nMEDIA:{tmp_path}/a.png")
    (answer,) = owes(turn(), repeated)
    assert (answer.text, answer.media) == ("Here it is.", ()), "it is there already"
    resumed = turn(said=(Message("tool", (made,)),), epoch=9)
    assert owes(resumed, repeated)[0].media == ()


def test_turns_whose_end_is_written_elsewhere_are_not_remembered_for_ever():
    owes = Owing(["telegram"])
    for epoch in range(5000):
        owes(turn(epoch=epoch), said("hi"))
    assert len(owes._told) <= 4096


def from_a_webhook(to, **more):
    inbound = Inbound("1", Address("webhook", "ci"), "ci", "look", answer_to=to, reply_to="77")
    return Turn("t1", "s", inbound, **more)


def test_what_came_from_no_chat_is_answered_where_it_says_and_without_the_way_there():
    home, owes = Address("telegram", "5", thread="2"), Owing(["telegram"])
    heard = []
    owes.heard = lambda *told: heard.append(told)
    here = from_a_webhook(home)
    assert owes(here, Said(user("look"))) == ()
    assert owes(here, said("let me look", CALL)) == ()
    assert owes(here, Said(Message("tool", (ToolResult("c1", "x"),)))) == ()
    (answer,) = owes(here, said("done"))
    assert (answer.id, answer.address, answer.text) == ("t1:2", home, "done")
    assert (answer.reply_to, answer.turn, heard) == ("", "", []), "nothing of it was shown unfinished"
    (failed,) = owes(here, TurnEnded("t1", "failed", "no credit"))
    assert (failed.address, failed.text) == (home, "It failed: no credit")
    resumed = from_a_webhook(home, said=(user("look"), assistant(Text("let me look"), CALL)), epoch=2)
    assert owes(resumed, said("done"))[0].id == "t1:1"
    assert Owing(["discord"])(here, said("done")) == (), "nobody serves that chat"
    assert owes(from_a_webhook(None), said("done")) == ()


def test_no_secret_is_sent_along_whatever_it_is_called(tmp_path):
    home, own = tmp_path / "home", tmp_path / "home" / ".alipes"
    (home / ".ssh").mkdir(parents=True)
    own.mkdir()
    for path in (own / ".env", home / ".ssh" / "id_rsa", home / "plain.txt"):
        path.write_text("x")
    (home / "link").symlink_to(own / ".env")
    (home / "hard").hardlink_to(own / ".env")
    places = Places(home=str(home), own=str(own))
    owes = Owing(["telegram"], [str(home)], keeps=places.keeps)
    for name in (".alipes/.env", ".ssh/id_rsa", "link", "hard", "missing"):
        (owed,) = owes(turn(), said(f"MEDIA: {home}/{name}"))
        assert owed.media == (), name
    (owed,) = owes(turn(), said(f"MEDIA: {home}/plain.txt"))
    assert [each.name for each in owed.media] == ["plain.txt"]
