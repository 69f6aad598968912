"""Contract of the tables of imports: the ledger, conversations and people."""

from msgspec import structs

from alipes.features.importer.records import PastConversation, PastMessage, PastUsage, RecordSource
from alipes.features.importer.store.conversations import ConversationStore
from alipes.features.importer.store.ledger import LedgerEntry, LedgerStore
from alipes.features.importer.store.people import ImportedPeople
from alipes.features.importer.transcript import build_rows
from alipes.kernel.messages import Text, assistant, user
from alipes.kernel.turns import Address, Usage

CHAT = Address("telegram", "1001")
SCOPE = "hermes:/there"
ENTRY = LedgerEntry("hermes-1", SCOPE, "conversations", "s1", "state.db", "h1", "made", "here1", "")


def conversation(*texts: str, **facts) -> PastConversation:
    messages = []
    for number, text in enumerate(texts):
        made = assistant(Text(text)) if number % 2 else user(text)
        messages.append(PastMessage(made, 1_700_000_000.0 + number, str(number)))
    return PastConversation(source=RecordSource("state.db", "s1", "h1"), messages=tuple(messages), **facts)


def rows(*texts: str, skip: int = 0, **facts):
    return build_rows(conversation(*texts, **facts), "here1", CHAT, "Hermes", skip=skip)


async def texts_of(store) -> list[str]:
    latest = await store.compaction.latest("here1")
    return [message.text for message in latest.history]


async def test_an_unfinished_import_is_continued_and_a_finished_one_is_not(opened):
    async with opened() as store:
        ledger = store.tables(LedgerStore)
        first = await ledger.begin(SCOPE, "hermes", ["hermes-4"])
        assert first.id == "hermes-5" and (await ledger.begin(SCOPE, "hermes")).id == first.id
        await ledger.add(structs.replace(ENTRY, import_id=first.id))
        await ledger.finish(first.id)
        assert (await ledger.begin(SCOPE, "hermes")).id == "hermes-6"
        assert await ledger.drop_empty("hermes-6") and not await ledger.drop_empty(first.id)
        assert [each.id for each in await ledger.list()] == [first.id]


async def test_the_latest_entry_counts_and_names_the_import_that_must_be_undone_first(opened):
    async with opened() as store:
        ledger = store.tables(LedgerStore)
        await ledger.begin(SCOPE, "hermes")
        await ledger.add(ENTRY)
        await ledger.add(structs.replace(ENTRY, target_hash="x"))
        assert len(await ledger.of_import("hermes-1")) == 1
        await ledger.finish("hermes-1")
        await ledger.begin(SCOPE, "hermes")
        await ledger.add(structs.replace(ENTRY, import_id="hermes-2", source_hash="h2"))
        assert (await ledger.known(SCOPE, "conversations"))["s1"].source_hash == "h2"
        assert await ledger.later("hermes-1") == ("hermes-2",) and await ledger.later("hermes-2") == ()
        await ledger.remove_import("hermes-2")
        assert (await ledger.known(SCOPE, "conversations"))["s1"].source_hash == "h1"


async def test_a_conversation_is_continued_and_taken_back(opened):
    async with opened() as store:
        ledger, conversations = store.tables(LedgerStore), store.tables(ConversationStore)
        await ledger.begin(SCOPE, "hermes")
        used = PastUsage("m", Usage(100, 5, cost=1.0), 1_700_000_000.0)
        await conversations.insert(rows("one", "two", usage=(used,)), ENTRY)
        assert await conversations.active(CHAT.key) == "here1"
        assert await texts_of(store) == ["one", "two"]
        before = await conversations.state("here1")
        later = structs.replace(
            ENTRY, import_id="hermes-1", source_id="s2", action="continued", details={"updated": 1.0}
        )
        await conversations.append(rows("one", "two", "three", "four", skip=2), later)
        assert await texts_of(store) == ["one", "two", "three", "four"]
        (made,) = [each for each in await ledger.of_import("hermes-1") if each.source_id == "s2"]
        await conversations.remove(made)
        assert await texts_of(store) == ["one", "two"] and await conversations.state("here1") == before
        assert await conversations.updated("here1") == 1.0
        (made,) = await ledger.of_import("hermes-1")
        assert await conversations.hash_content("here1", made.details["first_turn"], 2) == made.details["content"]
        await conversations.remove(made)
        assert await conversations.state("here1") is None and await conversations.active(CHAT.key) == ""


async def test_what_was_spent_there_is_in_reports_and_counts_against_no_limit(opened):
    async with opened() as store:
        await store.tables(LedgerStore).begin(SCOPE, "hermes")
        used = PastUsage("m", Usage(100, 5, cost=1.0), 1_700_000_000.0)
        await store.tables(ConversationStore).insert(rows("one", "two", usage=(used,)), ENTRY)
        assert (await store.usage_ledger.total_since(0.0)).dollars == 0.0
        assert (await store.usage_ledger.session_total("here1")).dollars == 0.0
        assert (await store.archive.usage()).usage.cost == 1.0


async def test_undone_and_compacted_messages_are_not_shown_to_the_model(opened):
    async with opened() as store:
        await store.tables(LedgerStore).begin(SCOPE, "hermes")
        past = conversation("old", "answer", "taken back", "answer 2", "new", "answer 3", summary="Old things.")
        states = ("compacted", "compacted", "undone", "undone", "shown", "shown")
        messages = tuple(structs.replace(each, state=state) for each, state in zip(past.messages, states, strict=True))
        past = structs.replace(past, messages=messages)
        await store.tables(ConversationStore).insert(build_rows(past, "here1", CHAT, "Hermes"), ENTRY)
        latest = await store.compaction.latest("here1")
        assert [each.text for each in latest.history] == ["old", "answer", "new", "answer 3"]
        assert (latest.compaction.covered, latest.compaction.text) == (2, "Old things.")


async def test_a_chat_gets_back_the_conversation_that_it_had(opened):
    async with opened() as store:
        ledger, conversations = store.tables(LedgerStore), store.tables(ConversationStore)
        mine = await store.sessions.open(CHAT)
        await ledger.begin(SCOPE, "hermes")
        await conversations.insert(rows("one", "two"), ENTRY)
        assert await conversations.active(CHAT.key) == "here1" and not await conversations.has_branches("here1")
        (made,) = await ledger.of_import("hermes-1")
        await conversations.remove(made)
        assert await conversations.active(CHAT.key) == mine.session


async def test_people_and_default_chats_are_added(opened):
    async with opened() as store:
        people = store.tables(ImportedPeople)
        await store.tables(LedgerStore).begin(SCOPE, "hermes")
        await people.add(("telegram", "7", "Ann", "user", 5.0), structs.replace(ENTRY, kind="people"))
        await people.set_default_chat(CHAT, structs.replace(ENTRY, kind="settings"))
        assert await store.people.role("telegram", "7") == "user"
        assert await store.people.default_chats() == {"telegram": CHAT}
        await people.remove_default_chat("telegram")
        assert await store.people.default_chats() == {}
