"""What turns send to chats: everything once, nothing else, and only files that may leave."""

import pytest

from alipes.gateway.outbound.policy import OutboundPolicy
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult, assistant, user
from alipes.kernel.turns import Address, Inbound, Said, ToolStarted, Turn, TurnEnded
from alipes.tools.common import Places


def turn(platform="telegram", **more):
    inbound = Inbound("1", Address(platform, "me"), "me", "hello", reply_to="77")
    return Turn("t1", "s", inbound, **more)


def said(text, *calls):
    return Said(assistant(Text(text), *calls))


CALL = ToolCall("c1", "hand", {})


def made(*paths):
    """A tool declared these files in an earlier turn of the conversation."""
    return (Message("tool", (ToolResult("c0", "made", files=tuple(map(str, paths))),)),)


class Observer:
    def __init__(self, on_recorded):
        self.on_recorded = on_recorded


def test_every_text_is_queued_with_its_own_number():
    policy, here = OutboundPolicy(["telegram"]), turn()
    assert policy(here, Said(user("hello"))) == ()
    (first,) = policy(here, said("let me look", CALL))
    assert policy(here, ToolStarted(CALL)) == ()
    assert policy(here, Said(Message("tool", (ToolResult("c1", "x"),)))) == ()
    (second,) = policy(here, said("done"))
    assert (first.id, first.text, first.reply_to, first.turn) == ("t1:0", "let me look", "77", "t1")
    assert (second.id, second.text) == ("t1:2", "done")
    assert policy(here, said("  ", CALL)) == ()


def test_a_resumed_turn_continues_its_numbers():
    before = (user("hello"), assistant(Text("let me look"), CALL), user("steered"))
    policy = OutboundPolicy(["telegram"])
    (again,) = policy(turn(said=before, epoch=2), said("done"))
    assert again.id == "t1:1"
    (fresh,) = OutboundPolicy(["telegram"])(turn(said=before, epoch=3), said("done"))
    assert fresh.id == "t1:1", "the same text of the same turn has the same id"


@pytest.mark.parametrize(
    ("ending", "detail", "words"),
    [
        ("answered", "", ""),
        ("failed", "no credit", "It failed: no credit"),
        ("failed", "", "It failed."),
        ("out_of_steps", "stopped at the limit of 50 steps", "I stopped at the limit of 50 steps."),
        ("stopped", "user_stop", ""),
        ("stopped", "superseded", ""),
        ("stopped", "timeout", "Stopped after a long time without activity."),
        ("steered", "t0", ""),
    ],
)
def test_an_ending_is_reported_if_nothing_else_reports_it(ending, detail, words):
    outbound = OutboundPolicy(["telegram"])(turn(), TurnEnded("t1", ending, detail))
    assert [(each.id, each.text) for each in outbound] == ([("t1:end", words)] if words else [])


def test_other_front_ends_get_nothing():
    seen = []
    policy = OutboundPolicy(["telegram"])
    policy.attach(Observer(lambda _turn, answer: seen.append(answer)))
    assert policy(turn("terminal"), said("hi")) == () and seen == []
    policy(turn(), Said(user("hello")))
    assert seen == [None]
    outbound = policy(turn(), said("hi"))
    assert seen == [None, outbound] and outbound


def test_named_files_are_sent_if_allowed(tmp_path):
    folder = tmp_path / "media"
    folder.mkdir()
    for name in ("a.png", "b.ogg", "c.pdf"):
        (folder / name).write_text("x")
    (tmp_path / "secret.env").write_text("x")
    (folder / "link.png").symlink_to(tmp_path / "secret.env")
    policy = OutboundPolicy(["telegram"], [str(folder)])
    text = f"Look:\n![a cat]({folder}/a.png)\nMEDIA: {folder}/b.ogg\nMEDIA:{folder}/c.pdf\n"
    secrets = (tmp_path / "secret.env", folder / "link.png", folder / "gone.png", folder / ".." / "secret.env")
    history = made(folder / "a.png", folder / "b.ogg", folder / "c.pdf", *secrets)
    (outbound,) = policy(turn(history=history), said(text))
    assert outbound.text == "Look:"
    assert [(each.kind, each.name, each.caption) for each in outbound.media] == [
        ("voice", "b.ogg", ""),
        ("file", "c.pdf", ""),
        ("image", "a.png", "a cat"),
    ]
    for path in secrets:
        (outbound,) = policy(turn(epoch=2, history=history), said(f"MEDIA:{path}"))
        assert outbound.media == () and outbound.text == f"MEDIA:{path}"
    assert OutboundPolicy(["telegram"])(turn(history=history), said(text))[0].media == ()


def test_a_file_that_only_texts_name_is_not_sent(tmp_path):
    (tmp_path / "report.pdf").write_text("x")
    policy, line = OutboundPolicy(["telegram"], [str(tmp_path)]), f"MEDIA:{tmp_path}/report.pdf"
    read = Message("tool", (ToolResult("c1", line),))
    assert policy(turn(), Said(read)) == ()
    (answer,) = policy(turn(), said(line))
    assert (answer.text, answer.media) == (line, ())
    (answer,) = policy(turn(epoch=2, history=(user(line), read)), said(f"![]({tmp_path}/report.pdf)"))
    assert answer.media == ()


@pytest.mark.parametrize(("outcome", "sent"), [("ok", 1), ("failed", 0)])
def test_a_file_that_the_model_wrote_in_this_turn_is_sent_if_the_answer_names_it(tmp_path, outcome, sent):
    (tmp_path / "a.csv").write_text("x")
    policy = OutboundPolicy(["telegram"], [str(tmp_path)])
    write = ToolCall("c1", "write_file", {"path": f"{tmp_path}/a.csv"})
    policy(turn(), said("I write.", write))
    policy(turn(), Said(Message("tool", (ToolResult("c1", "written", outcome),))))
    (answer,) = policy(turn(), said(f"Here.\nMEDIA:{tmp_path}/a.csv"))
    assert len(answer.media) == sent


def test_files_of_a_tool_are_sent_and_do_not_replace_drafts(tmp_path):
    (tmp_path / "a.png").write_text("x")
    policy = OutboundPolicy(["telegram"], [str(tmp_path)])
    painted = ToolResult("c1", "painted", files=(f"{tmp_path}/a.png",))
    failed = ToolResult("c2", "no", "failed", files=(f"{tmp_path}/a.png",))
    (outbound,) = policy(turn(), Said(Message("tool", (painted, failed))))
    assert len(outbound.media) == 1 and outbound.text == "" and outbound.turn == ""
    repeated = said(f"Here it is.\nMEDIA:{tmp_path}/a.png")
    (answer,) = policy(turn(), repeated)
    assert (answer.text, answer.media) == ("Here it is.", ()), "it was sent already"
    resumed = turn(said=(Message("tool", (painted,)),), epoch=9)
    assert policy(resumed, repeated)[0].media == ()


def test_turns_that_end_elsewhere_are_forgotten():
    policy = OutboundPolicy(["telegram"])
    for epoch in range(5000):
        policy(turn(epoch=epoch), said("hi"))
    assert len(policy._turns) <= 4096


def from_a_webhook(to, **more):
    inbound = Inbound("1", Address("webhook", "ci"), "ci", "look", answer_to=to, reply_to="77")
    return Turn("t1", "s", inbound, **more)


def test_a_turn_without_a_chat_sends_only_its_answer_to_the_target():
    home, policy = Address("telegram", "5", thread="2"), OutboundPolicy(["telegram"])
    seen = []
    policy.attach(Observer(lambda *event: seen.append(event)))
    here = from_a_webhook(home)
    assert policy(here, Said(user("look"))) == ()
    assert policy(here, said("let me look", CALL)) == ()
    assert policy(here, Said(Message("tool", (ToolResult("c1", "x"),)))) == ()
    (answer,) = policy(here, said("done"))
    assert (answer.id, answer.address, answer.text) == ("t1:2", home, "done")
    assert (answer.reply_to, answer.turn, seen) == ("", "", []), "no draft of it was shown"
    (failed,) = policy(here, TurnEnded("t1", "failed", "no credit"))
    assert (failed.address, failed.text) == (home, "It failed: no credit")
    resumed = from_a_webhook(home, said=(user("look"), assistant(Text("let me look"), CALL)), epoch=2)
    assert policy(resumed, said("done"))[0].id == "t1:1"
    assert OutboundPolicy(["discord"])(here, said("done")) == (), "no platform serves that chat"
    assert policy(from_a_webhook(None), said("done")) == ()


def test_no_secret_file_is_sent_whatever_its_name(tmp_path):
    home, own = tmp_path / "home", tmp_path / "home" / ".alipes"
    (home / ".ssh").mkdir(parents=True)
    own.mkdir()
    for path in (own / ".env", home / ".ssh" / "id_rsa", home / "plain.txt"):
        path.write_text("x")
    (home / "link").symlink_to(own / ".env")
    (home / "hard").hardlink_to(own / ".env")
    places = Places(home=str(home), alipes_home=str(own))
    policy = OutboundPolicy(["telegram"], [str(home)], is_private=places.is_withheld)
    for name in (".alipes/.env", ".ssh/id_rsa", "link", "hard", "missing"):
        assert policy(turn(), Said(*made(f"{home}/{name}"))) == (), name
    (outbound,) = policy(turn(), Said(*made(f"{home}/plain.txt")))
    assert [each.name for each in outbound.media] == ["plain.txt"]
