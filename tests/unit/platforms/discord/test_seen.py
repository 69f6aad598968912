"""How far we have listened: the mark never passes what was not handed over."""

from alipes.platforms.discord.receive import HANDED, PLACES, Seen


async def test_the_mark_stays_before_whatever_is_not_done(tmp_path):
    seen = Seen(tmp_path / "seen.json")
    assert (seen.mark, seen.since()) == (0, 0)
    for id in (10, 20, 30):
        seen.begin(id)
    seen.done(20)
    seen.done(30)
    assert seen.mark == 9
    seen.done(10)
    assert seen.mark == 30


async def test_a_gap_that_is_being_read_holds_the_mark(tmp_path):
    seen = Seen(tmp_path / "seen.json")
    seen.done(seen.begin(50))
    first, second = seen.hold(), seen.hold()
    seen.done(seen.begin(90))
    assert seen.mark == 50
    seen.done(first)
    assert seen.mark == 50
    seen.done(second)
    assert seen.mark == 90


async def test_a_hold_alone_moves_nothing(tmp_path):
    seen = Seen(tmp_path / "seen.json")
    seen.done(seen.begin(50))
    seen.done(seen.hold())
    assert seen.mark == 50


async def test_it_is_the_same_after_a_restart_and_nothing_when_broken(tmp_path):
    path = tmp_path / "folder" / "seen.json"
    seen = Seen(path)
    await seen.visit("7", "guild")
    seen.done(seen.begin(50))
    seen.begin(60)
    seen.flush()
    again = Seen(path)
    assert (again.mark, again.places) == (59, {"7": "guild"})
    path.write_text("half a fi")
    assert (Seen(path).mark, Seen(path).places) == (0, {})


async def test_a_new_place_is_known_to_who_comes_after_a_kill(tmp_path):
    path = tmp_path / "seen.json"
    seen = Seen(path)
    seen.begin(50)
    await seen.visit("7", "guild")
    assert (Seen(path).mark, Seen(path).places) == (49, {"7": "guild"})


async def test_old_places_and_names_are_forgotten(tmp_path):
    seen = Seen(tmp_path / "seen.json")
    for number in range(PLACES + 5):
        await seen.visit(str(number), "")
    await seen.visit("6", "")
    assert len(seen.places) == PLACES and "4" not in seen.places and list(seen.places)[-1] == "6"
    seen.forget("6")
    assert "6" not in seen.places
    assert seen.first("a") and not seen.first("a")
    for number in range(HANDED):
        seen.first(str(number))
    assert seen.first("a")
