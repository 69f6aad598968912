"""`alipes serve` killed with -9 while people write to it, also while it is down: nothing lost, doubled, left over."""

import os

import pytest

from tests.world.repeated_kills import kill_repeatedly

KILLS = min(int(os.environ.get("ALIPES_TORTURE_TRIALS", "3")), 50)


@pytest.mark.deadline(60 + 10 * KILLS)
@pytest.mark.parametrize("seed", range(2))
async def test_every_message_is_answered_once_and_in_order_however_often_it_is_killed(
    seed, tmp_path, figures
):
    toll = await kill_repeatedly(tmp_path, seed, kills=KILLS, chats=10)
    assert toll.messages > 0 and len(toll.again) == KILLS
    assert toll.clean, toll
    figures.tried(KILLS)
    figures.worst("from a start to the first answer", max(toll.again), "s")
    figures.worst("answers of one run twice, each known to be in doubt", len(toll.marked))
