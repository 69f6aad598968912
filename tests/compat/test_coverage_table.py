"""The table at the end of the suite has no hole: each path is walked on each surface, each hook demanded on it."""

from pathlib import Path

import pytest

from alipes.compat.hermes.hooks import VALID_HOOKS
from tests.compat.contract import ENDINGS, KEYWORDS, STOPS, SURFACES, course, expected, reason_against


def test_the_hooks_of_the_contract_are_those_that_can_be_registered():
    assert set(KEYWORDS) == VALID_HOOKS


@pytest.mark.parametrize("surface", SURFACES)
def test_every_path_is_walked_on_every_surface(surface):
    tests = (Path(__file__).parent / f"test_endings_{surface}.py").read_text()
    assert f'saw("{surface}", ' in tests
    assert [ending for ending in ENDINGS if f'"{ending}"' not in tests] == []


def test_every_hook_is_demanded_somewhere_or_has_a_reason_not_to_be():
    demanded = set().union(*map(expected, ENDINGS))
    missing = {hook: reason_against(hook, "answered") for hook in KEYWORDS if hook not in demanded}
    assert missing == {}


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_demanded_is_what_the_way_leads_past(ending):
    beside = {"pre_approval_request", "post_approval_response"} if ending != "pending" else set()
    beside |= {"post_llm_call"} if ending in ("answered", "resumed") else set()
    beside |= {"on_session_finalize"} | (set() if ending == "shutdown" else {"on_session_reset"})
    assert {*course(ending)} | beside == expected(ending)


def test_every_stop_is_reported_by_two_words_of_its_own():
    assert len(set(STOPS.values())) == len(STOPS)
