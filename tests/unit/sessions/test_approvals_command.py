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


async def allow(store, id, choice, *, key=KEY, session="s1", tool="terminal", rule="push"):
    await store.approvals.ask(Approval(id, session, key, "t1", tool, COMMAND, "/w", "overwrites work", rule, 1.0))
    if choice:
        assert await store.approvals.answer(id, choice, "ann")


async def test_rights_are_listed_with_who_and_where(tmp_path):
    async with at_desk(tmp_path) as desk:
        assert (await desk.type("/approvals")).text.startswith("No approvals")
        await allow(desk.house.store, "aaaaaa01", "always", key=OTHER)
        await allow(desk.house.store, "bbbbbb01", "session", tool="network", rule="connect to pypi.org")
        await allow(desk.house.store, "cccccc01", "once")
        lines = (await desk.type("/approvals")).text.splitlines()
        assert lines[0] == "aaaaaa  always   terminal: git push --force <U+202E> folder: /w"
        assert lines[1].strip() == "answered just now by ann in telegram:dm:4711"
        assert lines[2] == "bbbbbb  session  connect to pypi.org"
        assert lines[4:] == ["/approvals revoke ID ends one."]


async def test_one_is_shown_whole_and_revoked(tmp_path):
    async with at_desk(tmp_path) as desk:
        await allow(desk.house.store, "aaaaaa01", "always")
        shown = (await desk.type("/approvals show aaa")).text
        assert "allows   push" in shown and "overwrites work" in shown and "git push --force <U+202E>" in shown
        assert (await desk.type("/approvals revoke aaa")).text.startswith("Revoked: terminal: git push")
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
