"""Facts are data, prices are added up rightly, and what is unknown stays unknown."""

import subprocess
import sys

import pytest

from alipes.config.known_providers import CLOUDS, KEYED, KNOWN
from alipes.kernel.models import ModelFacts
from alipes.kernel.turns import Usage
from alipes.providers.registry import catalog, compute_cost, find_facts, similar_names

PRICED = ModelFacts(price_input=2.0, price_output=10.0, price_cached=0.2, price_cache_write=2.5)
M = 1_000_000


def test_a_known_model_has_facts_and_an_unknown_one_has_none_invented():
    sonnet = find_facts("anthropic/claude-sonnet-5-5")
    assert (sonnet.window, sonnet.output, sonnet.vision, sonnet.tools) == (1_000_000, 128_000, True, True)
    assert find_facts("anthropic/claude-of-tomorrow") == ModelFacts()
    assert find_facts("nobody/nothing") == ModelFacts()


def test_a_dated_name_is_the_model_it_names():
    assert find_facts("anthropic/claude-haiku-4-5-20251001") == find_facts("anthropic/claude-haiku-4-5")
    assert find_facts("openai/gpt-6.1-sol-2026-09-29") == find_facts("openai/gpt-6.1-sol")


def test_models_of_bedrock_are_known_by_their_names_in_regions():
    world = find_facts("bedrock/global.anthropic.claude-opus-5")
    assert find_facts("bedrock/anthropic.claude-opus-5") == world and world.price_input == 5
    europe = find_facts("bedrock/eu.anthropic.claude-opus-5")
    assert (europe.window, europe.efforts, europe.price_input) == (world.window, world.efforts, 5.5)
    nova = find_facts("bedrock/eu.amazon.nova-2-lite-v1:0")
    assert (nova.window, nova.price_input) == (1_000_000, None)
    assert find_facts("bedrock/eu.anthropic.claude-of-tomorrow") == ModelFacts()


def test_the_operator_has_the_last_word_field_by_field():
    said = {"xai/grok-4.7": ModelFacts(window=32_000), "mine/own": ModelFacts(tools=False)}
    mixed, plain = find_facts("xai/grok-4.7", said), find_facts("xai/grok-4.7")
    assert mixed.window == 32_000
    assert (mixed.price_input, mixed.long_from) == (plain.price_input, plain.long_from)
    assert find_facts("mine/own", said) == ModelFacts(tools=False)


def test_an_operator_who_names_a_price_is_not_given_our_surcharge():
    assert find_facts("xai/grok-4.7").long_input == 2
    flat = find_facts("xai/grok-4.7", {"xai/grok-4.7": ModelFacts(price_input=1.0, price_output=1.0)})
    assert compute_cost(Usage(input=400_000, output=100_000), flat) == pytest.approx(0.5)


def test_an_operator_may_name_a_surcharge():
    own = {"xai/grok-4.7": ModelFacts(long_from=10, long_input=3.0), "mine/own": ModelFacts(long_from=5)}
    mixed, plain = find_facts("xai/grok-4.7", own), find_facts("xai/grok-4.7")
    assert (mixed.long_from, mixed.long_input) == (10, 3.0)
    assert (mixed.long_output, mixed.price_input) == (plain.long_output, plain.price_input)
    assert find_facts("mine/own", own) == ModelFacts(long_from=5)


def test_cached_and_written_tokens_are_part_of_the_input_with_prices_of_their_own():
    usage = Usage(input=10 * M, cached=6 * M, cache_write=3 * M, output=M)
    assert compute_cost(usage, PRICED) == pytest.approx(1 * 2.0 + 6 * 0.2 + 3 * 2.5 + 10.0)


def test_reasoning_is_part_of_the_output_and_not_billed_twice():
    assert compute_cost(Usage(output=M, reasoning=900_000), PRICED) == pytest.approx(10.0)


def test_an_unknown_price_is_unknown_only_where_it_is_needed():
    known = ModelFacts(price_input=1.0, price_output=2.0)
    assert compute_cost(Usage(input=M, output=M), known) == pytest.approx(3.0)
    assert compute_cost(Usage(input=M, output=M, cached=1), known) is None
    assert compute_cost(Usage(input=M, cache_write=1), known) is None
    assert compute_cost(Usage(input=1), ModelFacts()) is None
    assert compute_cost(Usage(), ModelFacts()) is None


def test_free_is_a_price():
    assert compute_cost(Usage(input=M, output=M), find_facts("embedded/smollm2-135m")) == 0.0


def test_a_long_prompt_is_billed_at_the_long_price_all_of_it():
    long = ModelFacts(
        price_input=1.0, price_output=2.0, price_cached=0.5, long_from=100_000, long_input=2.0, long_output=1.5
    )
    assert compute_cost(Usage(input=100_000, output=100_000), long) == pytest.approx(0.1 + 0.2)
    assert compute_cost(Usage(input=200_000, cached=100_000, output=100_000), long) == pytest.approx(0.2 + 0.1 + 0.3)


def test_more_cached_than_input_never_makes_money():
    assert compute_cost(Usage(input=1, cached=M), PRICED) == pytest.approx(0.2)


def test_every_entry_belongs_to_a_known_provider_and_is_plausible():
    for name, known in catalog().items():
        provider, _, model = name.partition("/")
        assert (provider in KNOWN or provider in CLOUDS) and model, name
        if known.window and known.output:
            assert known.output <= known.window, name
        if known.price_input and known.price_cached is not None:
            assert known.price_cached < known.price_input < (known.price_output or 1e9), name
        assert (known.price_input is None) == (known.price_output is None), name
        assert known.long_from is None or (known.long_input > 1 and known.price_input is not None), name


@pytest.mark.parametrize("provider", KEYED)
def test_every_provider_that_takes_a_key_is_in_the_catalog(provider):
    assert any(name.startswith(f"{provider}/") for name in catalog())


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("sonnet", "anthropic/claude-sonnet-5-5"),
        ("claude-sonet-5-5", "anthropic/claude-sonnet-5-5"),
        ("anthropic/claude-opus-5.5", "anthropic/claude-opus-5-5"),
        ("openai/gpt6", "openai/gpt-6-sol"),
        ("gemini-flash", "gemini/gemini-flash-latest"),
        ("grok", "xai/grok-4.7"),
        ("mistral-large", "mistral/mistral-large-4"),
        ("embeded", "embedded/smollm2-135m"),
    ],
)
def test_near_matches_are_what_a_person_may_have_meant(written, meant):
    assert meant in similar_names(written, catalog())


def test_nothing_is_near_to_nonsense():
    assert similar_names("zzzz", catalog()) == ()
    assert similar_names("", catalog()) == ()


def test_the_catalog_is_read_only_when_somebody_asks():
    code = (
        "import alipes.providers.registry as c\n"
        "assert c.catalog.cache_info().currsize == 0\n"
        "c.find_facts('openai/gpt-6.1-sol')\n"
        "assert c.catalog.cache_info().currsize == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
