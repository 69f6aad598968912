"""`alipes serve` killed with SIGKILL while people write to it: nothing is lost, duplicated or left over."""

import os

import pytest

from tests.world.repeated_kills import kill_repeatedly

KILLS = min(int(os.environ.get("ALIPES_TORTURE_TRIALS", "2")), 50)


@pytest.mark.deadline(60 + 10 * KILLS)
@pytest.mark.parametrize("seed", range(2))
async def test_every_message_is_answered_once_and_in_order_however_often_it_is_killed(seed, tmp_path, figures):
    result = await kill_repeatedly(tmp_path, seed, kills=KILLS, chats=10)
    assert result.messages > 0 and len(result.again) == KILLS
    assert result.clean, result
    figures.tried(KILLS)
    figures.worst("from a start to the first answer", max(result.again), "s")
    figures.worst("answers sent twice, each marked uncertain", len(result.marked))
