"""Contract of every store for the keys of a provider."""

from alipes.kernel.api_keys import KeyRest
from alipes.kernel.turns import Usage


async def test_a_rest_is_seen_by_other_processes_and_replaced_by_the_next(opened):
    async with opened() as first, opened() as second:
        await first.provider_keys.rest("mine", KeyRest("A", "limit", 100.0))
        await first.provider_keys.rest("mine", KeyRest("B", "credit", 50.0))
        await first.provider_keys.rest("other", KeyRest("A", "rejected", 70.0))
        await second.provider_keys.rest("mine", KeyRest("A", "credit", 300.0))
        rests, last = await first.provider_keys.look("mine", "s")
    assert rests == {"A": KeyRest("A", "credit", 300.0), "B": KeyRest("B", "credit", 50.0)}
    assert last == ""


async def test_the_key_that_a_conversation_used_last_is_known_to_all(opened):
    async with opened() as first, opened() as second:
        await first.provider_keys.count("mine", "A", "s", "m", Usage(1, 2))
        await first.provider_keys.count("mine", "B", "s", "m", Usage(1, 2))
        await first.provider_keys.count("mine", "A", "another", "m", Usage(1, 2))
        assert (await second.provider_keys.look("mine", "s"))[1] == "B"
        assert (await second.provider_keys.look("mine", "another"))[1] == "A"
        assert (await second.provider_keys.look("other", "s"))[1] == ""


async def test_the_bill_of_each_key(opened):
    async with opened() as store:
        for variable, cost in (("A", 0.5), ("A", 0.25), ("B", None), ("B", 0.125)):
            await store.provider_keys.count("mine", variable, "s", "m", Usage(10, 2, 3, 4, 1, cost))
        await store.provider_keys.count("mine", "A", "another", "m", Usage(1, 1, cost=1.0))
        bill = {each.name: each for each in await store.archive.usage_by("key", days=2)}
        assert list(bill) == ["A", "B"]
        assert (bill["A"].calls, bill["A"].usage.input, bill["A"].usage.cost, bill["A"].unpriced) == (3, 21, 1.75, 0)
        assert (bill["B"].calls, bill["B"].usage.cost, bill["B"].unpriced) == (2, 0.125, 1)
        (first, _) = await store.archive.usage_by("key", session="s")
        assert (first.name, first.calls) == ("A", 2)
