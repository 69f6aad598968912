"""Contract of what the HTTP API stores: keys, webhooks, browsers, runs, responses, histories, pages of messages."""

from functools import partial

import pytest

from alipes.features.webhooks.store import Webhook, WebhookStore
from alipes.kernel.errors import SessionError
from alipes.kernel.messages import Text, assistant, user
from alipes.kernel.turns import Address, Inbound, Said
from alipes.store.ports.search import SessionOwner
from alipes.store.sql.api_history import Continuation, HistoryMismatch
from alipes.store.sql.api_runs import RunQuery, SessionQuery
from alipes.store.sql.transcript import PageQuery

ANN, BOB = Address("api", "a", user="ann"), Address("api", "b", user="bob")


async def run_turn(store, id, address, text="hello", answer="hi"):
    await store.turns.accept(Inbound(id, address, address.user, text))
    turn = await store.turns.claim_next(address.key)
    await store.turns.record(turn, Said(user(text)))
    await store.turns.record(turn, Said(assistant(Text(answer))))
    await store.turns.finish(turn, "answered", "")
    await store.turns.release(address.key)
    return turn


async def test_a_key_is_found_by_its_hash_until_it_is_revoked(opened):
    async with opened() as store:
        assert await store.api_keys.add("ci", b"hash", "run")
        assert not await store.api_keys.add("ci", b"other", "run")
        assert (await store.api_keys.find(b"hash")).name == "ci"
        assert await store.api_keys.revoke("ci")
        assert await store.api_keys.find(b"hash") is None


async def test_an_expired_key_is_listed_and_not_found(opened):
    async with opened() as store:
        await store.api_keys.add("old", b"hash", "read", lifetime_s=-1.0)
        assert await store.api_keys.find(b"hash") is None
        assert [key.name for key in await store.api_keys.all()] == ["old"]


async def test_a_webhook_is_stored_with_its_secret_and_counts_deliveries(opened):
    async with opened() as store:
        assert await store.tables(WebhookStore).add(Webhook("deploy", "Say {body.x}"), "s3cret")
        await store.tables(WebhookStore).count_delivery("deploy")
        found, secret = await store.tables(WebhookStore).find("deploy")
        assert found.prompt == "Say {body.x}"
        assert secret
        (status,) = await store.tables(WebhookStore).all()
        assert status.deliveries == 1
        assert await store.tables(WebhookStore).secrets() == ("s3cret",)
        assert await store.tables(WebhookStore).remove("deploy")


async def test_a_login_code_works_once(opened):
    async with opened() as store:
        code = await store.browsers.add_code("admin")
        login = await store.browsers.log_in(code.code, "Firefox")
        assert await store.browsers.log_in(code.code, "Chrome") is None
        assert (await store.browsers.find(login.cookie, login.secret)).name == "Firefox"


async def test_half_a_login_is_refused(opened):
    async with opened() as store:
        login = await store.browsers.log_in((await store.browsers.add_code("read")).code, "Firefox")
        assert await store.browsers.find("wrong", login.secret) is None


async def test_a_revoked_browser_is_gone(opened):
    async with opened() as store:
        login = await store.browsers.log_in((await store.browsers.add_code("read")).code, "Firefox")
        assert await store.browsers.revoke(login.browser.id)
        assert not await store.browsers.exists(login.browser.id)


async def test_a_caller_sees_only_its_own_sessions_and_runs(opened):
    async with opened() as store:
        ours = await run_turn(store, "1", ANN)
        await run_turn(store, "2", BOB)
        owner = SessionOwner("api", "ann")
        assert [each.id for each in await store.api_runs.sessions(owner, SessionQuery(10))] == [ours.session]
        assert await store.api_runs.list_runs(owner, RunQuery(10)) == [ours.id]


async def test_conversations_are_pinned_archived_and_filed(opened):
    async with opened() as store:
        ours, other = await run_turn(store, "1", ANN), await run_turn(store, "2", BOB)

        async def found(**wanted) -> list[str]:
            return [each.id for each in await store.api_runs.sessions(None, SessionQuery(10, **wanted))]

        assert await found(pinned=True) == await found(archived=True) == await found(folder="Work") == []
        await store.sessions.organize(ours.session, pinned=True, folder="  Work  at home ")
        await store.sessions.organize(other.session, archived=True)
        pinned, filed, kept = await found(pinned=True), await found(folder="Work at home"), await found(archived=False)
        assert pinned == filed == kept == [ours.session]
        assert await found(archived=True) == [other.session]
        assert await store.api_runs.folders(None) == [("Work at home", 1)]
        await store.sessions.organize(ours.session, pinned=False)
        row = await store.api_runs.session(ours.session)
        assert (row.pinned, row.archived, row.folder) == (False, False, "Work at home")
        with pytest.raises(SessionError):
            await store.sessions.organize("nobody", pinned=True)


async def test_conversations_of_people_ask_and_keys_are_distinguished(opened):
    async with opened() as store:
        page = await run_turn(store, "1", Address("api", "x", user="page"))
        key, quiet = await run_turn(store, "2", ANN), await run_turn(store, "3", BOB)
        asked = await run_turn(store, "4", Address("terminal", "ask-260101-0800-aa"))
        named = await run_turn(store, "5", Address("terminal", "work"))
        await store.api_keys.add("ann", b"a", "run")
        await store.api_keys.add("bob", b"b", "run", unlisted=True)

        async def found(**wanted) -> set[str]:
            return {each.id for each in await store.api_runs.sessions(None, SessionQuery(10, **wanted))}

        assert await found(made_by="person") == {page.session, named.session}
        assert await found(made_by="ask") == {asked.session}
        assert await found(made_by="key") == {key.session, quiet.session}
        assert await found(made_by="key", listed=True) == {key.session}
        assert (await store.api_runs.session(quiet.session)).unlisted
        assert [each.unlisted for each in await store.api_keys.all()] == [False, True]


async def test_the_branches_of_a_conversation_are_listed(opened):
    async with opened() as store:
        ours, other = await run_turn(store, "1", ANN), await run_turn(store, "2", BOB)
        branch = await store.api_runs.fork(ours.session, Address("api", "branch", user="ann"))
        found = await store.api_runs.sessions(None, SessionQuery(10, parent=ours.session))
        assert [each.id for each in found] == [branch]
        assert await store.api_runs.sessions(None, SessionQuery(10, parent=other.session)) == []


async def test_a_link_shows_one_conversation_until_it_expires_or_is_ended(opened):
    async with opened() as store:
        turn = await run_turn(store, "1", ANN)
        share, token = await store.shares.add(turn.session, 1)
        assert await store.shares.find(token) == share
        assert share.session == turn.session and await store.shares.find(token + "x") is None
        assert await store.shares.all(turn.session) == (share,) and await store.shares.all("other") == ()
        _, short = await store.shares.add(turn.session, 1e-12)
        assert await store.shares.find(short) is None
        assert await store.shares.end(share.id) and not await store.shares.end(share.id)
        assert await store.shares.find(token) is None


async def test_unfinished_runs_are_counted_by_caller(opened):
    async with opened() as store:
        await store.turns.accept(Inbound("1", ANN, "ann", "a"))
        await store.turns.accept(Inbound("2", BOB, "bob", "b"))
        assert await store.api_runs.count_unfinished("api") == {"ann": 1, "bob": 1}


async def test_a_fork_shares_the_finished_turns(opened):
    async with opened() as store:
        turn = await run_turn(store, "1", ANN)
        fork = await store.api_runs.fork(turn.session, Address("api", "c", user="ann"))
        assert [message.text for message in await store.archive.messages(fork)] == ["hello", "hi"]


async def test_a_stored_response_is_found_until_it_is_deleted(opened):
    async with opened() as store:
        inbound = Inbound("1", ANN, "ann", "hello")
        admitted = await store.api_history.admit_continuation(Continuation(inbound, response=("resp_1", "{}")))
        turn = await store.turns.claim_next(admitted.address.key)
        await store.turns.finish(turn, "answered", "")
        found = await store.responses.find("resp_1")
        assert found.turn == admitted.turn
        await store.responses.delete(found)
        assert await store.responses.find("resp_1") is None


async def test_a_message_after_a_finished_turn_continues_its_conversation(opened):
    async with opened() as store:
        turn = await run_turn(store, "1", ANN)
        admitted = await store.api_history.admit_continuation(
            Continuation(Inbound("2", ANN, "ann", "on"), after=turn.id)
        )
        assert admitted.session == turn.session


async def test_a_message_after_an_unknown_turn_is_refused(opened):
    async with opened() as store:
        with pytest.raises(HistoryMismatch):
            await store.api_history.admit_continuation(Continuation(Inbound("2", ANN, "ann", "on"), after="nothing"))


async def test_the_turn_that_a_request_repeats_is_found_while_it_runs_and_afterwards(opened):
    async with opened() as store:
        find = partial(store.api_history.find_copy, "api", "chat:aa:", within=600.0)
        await store.turns.accept(Inbound("chat:ab:1", BOB, "bob", "hello"))
        assert await find() is None
        admitted = await store.api_history.admit_continuation(Continuation(Inbound("chat:aa:1", ANN, "ann", "hello")))
        assert (await find()).turn == admitted.turn
        turn = await store.turns.claim_next(admitted.address.key)
        assert (await find()).turn == admitted.turn
        await store.turns.finish(turn, "answered", "")
        assert (await find()).session == admitted.session
        assert await store.api_history.find_copy("api", "chat:aa:", within=-600.0) is None


async def test_a_turn_that_ended_because_its_client_left_is_not_found(opened):
    async with opened() as store:
        admitted = await store.api_history.admit_continuation(Continuation(Inbound("chat:aa:1", ANN, "ann", "hello")))
        await store.turns.finish(await store.turns.claim_next(admitted.address.key), "stopped", "disconnected")
        assert await store.api_history.find_copy("api", "chat:aa:", within=600.0) is None


async def test_a_page_has_the_newest_messages_in_order(opened):
    async with opened() as store:
        turn = await run_turn(store, "1", ANN)
        await run_turn(store, "2", ANN, "more", "done")
        page = await store.transcripts.page(turn.session, PageQuery(3))
        assert [each.message.text for each in page.messages] == ["hi", "more", "done"]
        assert (page.total, page.more_before, page.more_after) == (4, True, False)


async def test_a_message_of_another_conversation_is_not_found(opened):
    async with opened() as store:
        ours, theirs = await run_turn(store, "1", ANN), await run_turn(store, "2", BOB)
        page = await store.transcripts.page(theirs.session, PageQuery(1))
        with pytest.raises(SessionError):
            await store.transcripts.message(ours.session, page.messages[0].number)
