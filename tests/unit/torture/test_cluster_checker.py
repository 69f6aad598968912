"""The checker of cluster histories finds each kind of violation in a made-up history."""

import pytest
from msgspec import structs

from tests.torture.cluster_checker import (
    Asked,
    ClaimFact,
    DeliveryFact,
    EffectFact,
    History,
    MessageFact,
    SendFact,
    TurnFact,
    check_history,
    count_by_rule,
    count_in_flight,
)

KEY = "agent:main:test:dm:1"


def good() -> History:
    """Two messages in one chat, each with a tool call; the second turn was taken over by another worker."""
    return History(
        asked=[Asked(KEY, "m1", "x1x"), Asked(KEY, "m2", "x2x")],
        turns=[TurnFact(1, "t1", KEY, "m1", "answered"), TurnFact(2, "t2", KEY, "m2", "answered")],
        messages=[
            MessageFact(1, 1, "s", "user", "one"),
            MessageFact(2, 1, "s", "assistant", calls=("c1",), epoch=1, at=1.1),
            MessageFact(3, 1, "s", "tool", answers="c1", epoch=1, at=1.2),
            MessageFact(4, 1, "s", "assistant", "x1x", epoch=1, at=1.3),
            MessageFact(5, 2, "s", "user", "two"),
            MessageFact(6, 2, "s", "assistant", calls=("c2",), epoch=2, at=2.1),
            MessageFact(7, 2, "s", "tool", answers="c2", epoch=3, at=3.1),
            MessageFact(8, 2, "s", "assistant", "x2x", epoch=3, at=3.2),
        ],
        claims=[ClaimFact(KEY, 1, "a", 1.0), ClaimFact(KEY, 2, "a", 2.0), ClaimFact(KEY, 3, "b", 3.0)],
        effects=[EffectFact("a", KEY, "t1", 1, "c1", 1.15), EffectFact("a", KEY, "t2", 2, "c2", 2.15)],
        deliveries=[DeliveryFact("test:1", "x1x", "sent"), DeliveryFact("test:1", "x2x", "sent")],
        sends=[SendFact("test:1", "x1x"), SendFact("test:1", "x2x")],
    )


def test_a_good_history_has_no_violation():
    assert check_history(good()) == []


def test_the_call_in_flight_at_a_takeover_is_counted():
    assert count_in_flight(good()) == 1


def test_a_call_whose_turn_ended_before_another_worker_took_the_session_is_not_counted_as_in_flight():
    history = good()
    history.claims[1] = structs.replace(history.claims[1], holder="c")
    history.effects[1] = structs.replace(history.effects[1], worker="c")
    assert count_in_flight(history) == 1


def lose_turn(history):
    del history.turns[1]
    history.messages = history.messages[:4]


def double_turn(history):
    history.turns.append(TurnFact(3, "t3", KEY, "m2", "answered"))


def lose_ending(history):
    history.turns[1] = structs.replace(history.turns[1], ending=None)


def share_epoch(history):
    history.claims.append(ClaimFact(KEY, 3, "c", 3.05))


def lower_epoch(history):
    history.claims[2] = structs.replace(history.claims[2], at=1.5)


def write_late(history):
    history.messages[5] = structs.replace(history.messages[5], at=3.05)


def mix_turns(history):
    history.messages[3] = structs.replace(history.messages[3], number=9)


def drop_result(history):
    del history.messages[2]


def repeat_result(history):
    history.messages.append(structs.replace(history.messages[6], number=9))


def answer_twice(history):
    history.messages.append(structs.replace(history.messages[7], number=9))


def ask_twice(history):
    history.messages.insert(7, MessageFact(7, 2, "s", "user", "two"))


def start_without_question(history):
    del history.messages[0]


def leave_in_outbox(history):
    history.deliveries[1] = structs.replace(history.deliveries[1], state="sending")


def lose_send(history):
    del history.sends[1]


def send_twice(history):
    history.sends.append(history.sends[1])


def send_in_another_order(history):
    history.sends.reverse()


def call_late(history):
    history.effects[1] = structs.replace(history.effects[1], at=3.2)


def call_twice(history):
    history.effects.append(EffectFact("b", KEY, "t2", 3, "c2", 3.05))


@pytest.mark.parametrize(
    ("harm", "rule"),
    [
        (lose_turn, "lost"),
        (double_turn, "doubled"),
        (lose_ending, "unfinished"),
        (share_epoch, "two holders"),
        (lower_epoch, "epoch fell"),
        (write_late, "late row"),
        (mix_turns, "mixed"),
        (drop_result, "transcript"),
        (repeat_result, "transcript"),
        (answer_twice, "transcript"),
        (ask_twice, "transcript"),
        (start_without_question, "transcript"),
        (leave_in_outbox, "not delivered"),
        (lose_send, "not sent"),
        (send_twice, "sent twice"),
        (send_in_another_order, "reordered"),
        (call_late, "late call"),
        (call_twice, "run twice"),
    ],
)
def test_each_violation_is_found(harm, rule):
    history = good()
    harm(history)
    assert rule in count_by_rule(check_history(history))


def test_a_second_send_that_the_outbox_calls_uncertain_is_allowed():
    history = good()
    send_twice(history)
    history.deliveries[1] = structs.replace(history.deliveries[1], uncertain=True)
    assert check_history(history) == []


def test_a_repeated_call_of_the_same_worker_after_its_own_claim_is_not_late():
    history = good()
    history.claims[2] = structs.replace(history.claims[2], holder="a")
    history.effects[1] = structs.replace(history.effects[1], at=3.2)
    assert check_history(history) == []


def test_a_stopped_turn_needs_no_answer():
    history = good()
    history.turns[1] = structs.replace(history.turns[1], ending="stopped")
    del history.sends[1], history.deliveries[1]
    assert check_history(history) == []


@pytest.mark.parametrize(("acts", "expected"), [(False, []), (True, ["two holders"])])
def test_a_claim_that_a_crash_of_the_server_took_back_counts_if_its_worker_acted(acts, expected):
    history = good()
    history.believed.append(ClaimFact(KEY, 3, "c", 2.9))
    assert "two holders" in count_by_rule(check_history(history)), "without a crash no claim is lost"
    history.server_crashed = True
    if acts:
        history.effects.append(EffectFact("c", KEY, "t9", 3, "c9", 2.95))
    assert [rule for rule in count_by_rule(check_history(history)) if rule == "two holders"] == expected
