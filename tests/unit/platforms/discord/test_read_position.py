"""The read position never passes an undelivered message."""

from alipes.platforms.discord.receive import MAX_CHANNELS, DiscordReadPosition
from alipes.platforms.state_files import MAX_DELIVERED


async def test_the_position_stays_before_unfinished_messages(tmp_path):
    seen = DiscordReadPosition(tmp_path / "seen.json")
    assert (seen.position, seen.since()) == (0, 0)
    for id in (10, 20, 30):
        seen.start(id)
    seen.finish(20)
    seen.finish(30)
    assert seen.position == 9
    seen.finish(10)
    assert seen.position == 30


async def test_a_gap_being_read_holds_the_position(tmp_path):
    seen = DiscordReadPosition(tmp_path / "seen.json")
    seen.finish(seen.start(50))
    first, second = seen.hold(), seen.hold()
    seen.finish(seen.start(90))
    assert seen.position == 50
    seen.finish(first)
    assert seen.position == 50
    seen.finish(second)
    assert seen.position == 90


async def test_a_hold_alone_moves_nothing(tmp_path):
    seen = DiscordReadPosition(tmp_path / "seen.json")
    seen.finish(seen.start(50))
    seen.finish(seen.hold())
    assert seen.position == 50


async def test_the_position_survives_a_restart_and_a_damaged_file_is_empty(tmp_path):
    path = tmp_path / "folder" / "seen.json"
    seen = DiscordReadPosition(path)
    await seen.visit("7", "guild")
    seen.finish(seen.start(50))
    seen.start(60)
    seen.flush()
    again = DiscordReadPosition(path)
    assert (again.position, again.places) == (59, {"7": "guild"})
    path.write_text("half a fi")
    assert (DiscordReadPosition(path).position, DiscordReadPosition(path).places) == (0, {})


async def test_a_new_channel_is_known_after_a_kill(tmp_path):
    path = tmp_path / "seen.json"
    seen = DiscordReadPosition(path)
    seen.start(50)
    await seen.visit("7", "guild")
    assert (DiscordReadPosition(path).position, DiscordReadPosition(path).places) == (49, {"7": "guild"})


async def test_old_channels_and_ids_are_forgotten(tmp_path):
    seen = DiscordReadPosition(tmp_path / "seen.json")
    for number in range(MAX_CHANNELS + 5):
        await seen.visit(str(number), "")
    await seen.visit("6", "")
    assert len(seen.places) == MAX_CHANNELS and "4" not in seen.places and list(seen.places)[-1] == "6"
    seen.forget("6")
    assert "6" not in seen.places
    assert seen.mark_delivered("a") and not seen.mark_delivered("a")
    for number in range(MAX_DELIVERED):
        seen.mark_delivered(str(number))
    assert seen.mark_delivered("a")
