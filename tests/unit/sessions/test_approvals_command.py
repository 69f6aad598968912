"""`/approvals`: what it lists, shows and revokes, and what a group does not see."""

import pytest
from msgspec import structs

from alipes.kernel.errors import SessionError
from alipes.kernel.turns import Address
from alipes.sessions.commands.approvals import approvals
from alipes.store.sql.approvals import Approval
from tests.unit.sessions.test_commands import KEY, at_desk

OTHER = Address("telegram", "4711").key
COMMAND = '{"command":"git push --force \\u202e"}'


async def allow(store, id, choice, *, key=KEY, session="s1", tool="terminal", rule="push", arguments=COMMAND):
    await store.approvals.ask(Approval(id, session, key, "t1", tool, arguments, "/w", "overwrites work", rule, 1.0))
    if choice:
        assert await store.approvals.answer(id, choice, "ann")


async def test_rights_are_listed_with_who_and_where(tmp_path):
    async with at_desk(tmp_path) as desk:
        assert (await desk.type("/approvals")).text.startswith("No approvals")
        await allow(desk.house.store, "aaaaaa01", "always", key=OTHER)
        await allow(desk.house.store, "bbbbbb01", "session", tool="network", rule="connect to pypi.org")
        await allow(desk.house.store, "cccccc01", "once")
        lines = (await desk.type("/approvals")).text.splitlines()
        assert lines[0] == "Only in /w:"
        assert lines[1] == "  aaaaaa  always  git push --force <U+202E>  (in /w)"
        assert lines[2].strip() == "just now by ann, in telegram:dm:4711"
        assert lines[3:5] == ["Only in test:dm:me:", "  bbbbbb  session connect to pypi.org"]
        assert lines[6:] == ["/approvals revoke ID ends one."]


async def test_what_holds_elsewhere_is_listed_under_its_conversation_or_folder(tmp_path):
    async with at_desk(tmp_path) as desk:
        store = desk.house.store
        here = await store.sessions.open(desk.context.inbound.address)
        other = await store.sessions.open(Address("test", "you"))
        await store.sessions.set_title_if_empty(other.session, "please add brackets")
        await allow(store, "aaaaaa01", "always")
        await allow(store, "bbbbbb01", "session", session=other.session, rule="theirs")
        await allow(store, "cccccc01", "session", session=here.session, rule="mine")
        rights = (await desk.type("/permissions")).text.partition("Allowed without asking:\n")[2].splitlines()
        assert rights[0] == "  cccccc  session git push --force <U+202E>  (in /w)"
        assert rights[1:3] == ["Only in /w:", "  aaaaaa  always  git push --force <U+202E>  (in /w)"]
        assert rights[3:5] == ['Only in "please add brackets":', "  bbbbbb  session git push --force <U+202E>  (in /w)"]
        assert 'just now by ann, in "please add brackets"' in (await desk.type("/approvals")).text


async def test_nothing_is_allowed_here_by_the_rights_of_another_conversation(tmp_path):
    async with at_desk(tmp_path) as desk:
        await allow(desk.house.store, "bbbbbb01", "session")
        assert "Allowed without asking:\n  nothing beyond the mode\nOnly in" in (await desk.type("/permissions")).text


@pytest.mark.parametrize(
    ("tool", "arguments", "shown"),
    [
        ("write_file", '{"path":".github/ci.yml","content":"on: push"}', "Write .github/ci.yml  (in /w)"),
        ("execute_code", '{"code":"print(1)"}', "Run Python print(1)  (in /w)"),
        ("terminal", '{"command":"ls","outside":true}', "ls, outside the sandbox, with your rights  (in /w)"),
        ("mcp__srv__\u202edo", '{"a":1}', "srv: <U+202E>do a=1  (in /w)"),
    ],
)
async def test_a_call_is_listed_in_plain_words(tmp_path, tool, arguments, shown):
    async with at_desk(tmp_path) as desk:
        await allow(desk.house.store, "aaaaaa01", "always", tool=tool, arguments=arguments)
        assert f"  aaaaaa  always  {shown}" in (await desk.type("/permissions")).text.splitlines()


async def test_one_is_shown_whole_and_revoked(tmp_path):
    async with at_desk(tmp_path) as desk:
        await allow(desk.house.store, "aaaaaa01", "always")
        shown = (await desk.type("/approvals show aaa")).text
        assert "allows   push" in shown and "overwrites work" in shown and "git push --force <U+202E>" in shown
        assert (await desk.type("/approvals revoke aaa")).text.startswith("Revoked: git push")
        again = await desk.type("/approvals revoke aaa")
        assert again.failed and again.text == "That approval is not in force."
        assert (await desk.type("/approvals show zzz")).failed


async def test_all_are_revoked(tmp_path):
    async with at_desk(tmp_path) as desk:
        await allow(desk.house.store, "aaaaaa01", "always")
        await allow(desk.house.store, "bbbbbb01", "session", rule="other")
        assert (await desk.type("/approvals revoke all")).text == "Revoked 2 approvals."
        assert (await desk.type("/approvals")).text.startswith("No approvals")


@pytest.mark.parametrize("text", ["/approvals show", "/approvals revoke", "/approvals revoke a b", "/approvals x"])
async def test_wrong_use_shows_the_usage(tmp_path, text):
    async with at_desk(tmp_path) as desk:
        reply = await desk.type(text)
        assert reply.failed and "Usage: /approvals" in reply.text


async def test_an_open_question_is_not_revoked(tmp_path):
    async with at_desk(tmp_path) as desk:
        await allow(desk.house.store, "aaaaaa01", "")
        reply = await desk.type("/approvals revoke aaaaaa01")
        assert reply.failed and "still open" in reply.text


async def test_a_group_sees_only_its_own(tmp_path):
    group = Address("test", "team", "group")
    async with at_desk(tmp_path) as desk:
        await allow(desk.house.store, "aaaaaa01", "always", key=OTHER)
        await allow(desk.house.store, "bbbbbb01", "always", key=group.key, rule="other")
        inbound = structs.replace(desk.context.inbound, address=group)
        context = structs.replace(desk.context, inbound=inbound, local_files=False)
        assert "aaaaaa" not in (await approvals(context, "")).text
        assert "bbbbbb" in (await approvals(context, "")).text
        assert (await approvals(context, "revoke all")).failed
        with pytest.raises(SessionError, match="not the id"):
            await approvals(context, "show aaaaaa")
