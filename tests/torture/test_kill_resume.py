"""`kill -9` at random moments of a ten-step turn; the next process on that home goes on with it."""

import json
import random

import pytest

from tests.torture.trials import seeds
from tests.world.killing import PLAN, trial
from tests.world.model_server import serve


@pytest.mark.deadline(120)
@pytest.mark.parametrize("seed", seeds(3, 20))
async def test_a_killed_turn_is_finished_by_the_next_process_and_no_finished_step_is_repeated(
    seed, tmp_path, figures
):
    dice = random.Random(seed)
    async with serve(json.dumps(PLAN), tmp_path) as server:
        for n in range(3):
            told = await trial(tmp_path / str(n), server, dice.random() * 0.4)
            assert told.ending == "answered", told
            assert told.repeated == (), told
            assert told.unknown <= 1, told
            assert told.rejected == 0, told
            figures.worst("calls of one turn that nobody knows of", told.unknown)
    figures.tried(3)
