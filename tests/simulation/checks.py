"""Checks after a run has settled: nothing lost, nothing duplicated, everything in order."""

from collections import Counter
from typing import Any

import msgspec

from alipes.kernel.messages import ToolResult
from alipes.sessions.subagents.registry import PARENT_ENDED
from alipes.store.sql.rows import Decoders
from tests.simulation.fake_network import ME, FakeNetwork
from tests.simulation.machine import Machine
from tests.simulation.observer import Observer, unanswered
from tests.simulation.plan import Plan
from tests.simulation.process import PLATFORM

_NOTICE_TURNS = "SELECT id FROM turns WHERE json_extract(inbound, '$.notice') IS NOT NULL"
STOPS = {"user_stop", "superseded", "reset"}
_STOPPING = {"stop", "new", "undo", "retry"}
_HOLDING = {"stop", "undo"}
ENDINGS = {"answered", "stopped", "failed", "steered", "out_of_steps"}


def check_outcome(machine: Machine, network: FakeNetwork, observer: Observer, plan: Plan) -> None:
    turns = machine.disk.rows("SELECT id, inbound_id, platform, ending, detail, held FROM turns ORDER BY number")
    _check_messages(machine, network, turns)
    _check_endings(machine, plan, turns)
    _check_transcripts(machine)
    deliveries = machine.disk.rows(
        "SELECT id, lane, outbound, state, sent_ids, uncertain_part, reason FROM outbox ORDER BY number"
    )
    _check_order(machine, deliveries)
    _check_answers(machine, network, observer, turns, deliveries, plan)
    _check_jobs(machine, plan)


def _check_jobs(machine: Machine, plan: Plan) -> None:
    """Each job fired once, each of its runs had one turn, and its end was delivered once."""
    for job in plan.jobs:
        runs = machine.disk.rows("SELECT number, state, attempt FROM schedule_runs WHERE schedule_id = ?", job.name)
        if [attempt for _, _, attempt in runs] != [*range(1, len(runs) + 1)] or not runs:
            machine.report(f"{job.name} has the runs {runs}")
            continue
        sql = "SELECT count(*) FROM turns WHERE platform = 'schedule' AND json_extract(inbound, '$.address.chat') = ?"
        ((turns,),) = machine.disk.rows(sql, job.name)
        if turns != len(runs):
            machine.report(f"{job.name} fired {turns} times for {len(runs)} runs")
        if any(state != "failed" for _, state, _ in runs[:-1]) or runs[-1][1] not in ("ok", "failed"):
            machine.report(f"{job.name} ended as {runs}")
        prefix = [f"schedule:{number}:0" for number, _, _ in runs]
        enqueued = [each for each in prefix if machine.disk.rows("SELECT 1 FROM outbox WHERE id = ?", each)]
        if enqueued != prefix[-1:]:
            machine.report(f"{job.name} has the messages {enqueued}, expected {prefix[-1:]}")


def _check_messages(machine: Machine, network: FakeNetwork, turns: list[Any]) -> None:
    """Each message became one turn, or the answer to a question; never both."""
    became = Counter(inbound for _, inbound, _, _, _, _ in turns)
    became.update(id for (id,) in machine.disk.rows("SELECT id FROM inbox WHERE batch = 'answer'"))
    for (chat, number), message in network.said.items():
        count = became[f"{ME}:{chat}:{message}"]
        if count != 1:
            machine.report(f"message {number} of chat {chat} became {count} turns")
    for message, chat in network.answers.items():
        if became[f"{ME}:{chat}:{message}"] > 1:
            machine.report(f"an answer in chat {chat} became a turn as well")


def _check_endings(machine: Machine, plan: Plan, turns: list[Any]) -> None:
    no_faults = not plan.faults
    stops = plan.busy == "interrupt" or any(each.kind in _STOPPING for each in plan.actions)
    holds = any(each.kind in _HOLDING for each in plan.actions)
    for id, _, _, ending, detail, held in turns:
        if ending not in ENDINGS and not (held and holds):
            machine.report(f"turn {id} has no ending: {ending}")
        parent_ended = ending == "stopped" and detail == PARENT_ENDED  # its parent ended
        if (no_faults and ending == "failed") or (
            ending == "stopped" and (not stops or detail not in STOPS) and not parent_ended
        ):
            machine.report(f"turn {id} {ending} without a reason: {detail}")


def _check_transcripts(machine: Machine) -> None:
    for (session,) in machine.disk.rows("SELECT DISTINCT session_id FROM messages"):
        sql = "SELECT message FROM messages WHERE session_id = ? ORDER BY number"
        messages = [Decoders.message.decode(row) for (row,) in machine.disk.rows(sql, session)]
        left = not machine.disk.rows("SELECT 1 FROM leases WHERE session_id = ?", session)
        if left and messages and messages[-1].calls:
            messages.pop()  # left while no turn was running: the next turn there answers the calls first
        if violations := unanswered(messages):
            machine.report(f"in the transcript of {session}: {violations}")
        parts = [part for each in messages for part in each.parts if isinstance(part, ToolResult)]
        if any("nobody is available to approve it" in part.text for part in parts):
            machine.report(f"a call in {session} was refused without asking anyone")


def _check_order(machine: Machine, deliveries: list[Any]) -> None:
    """Deliveries appear in a chat in the order they were enqueued; answers may replace their drafts."""
    last: dict[tuple[str, bool], int] = {}
    for id, lane, outbound, state, paid, _, _ in deliveries:
        if state != "sent":
            continue
        turn = bool(msgspec.json.decode(outbound).get("turn"))
        for message in map(int, msgspec.json.decode(paid)):
            if message <= last.get((lane, turn), 0):
                machine.report(f"{id} appears before an earlier message")
            last[lane, turn] = message


def _check_answers(
    machine: Machine, network: FakeNetwork, observer: Observer, turns: list[Any], deliveries: list[Any], plan: Plan
) -> None:
    texts = [(str(msgspec.json.decode(delivery[2]).get("text")), delivery) for delivery in deliveries]
    by_turn_and_text = {(delivery[0].partition(":")[0], text): delivery for text, delivery in texts}
    deaths = sum(each.kind not in ("net", "hook") for each in plan.faults)
    noted = {id for (id,) in machine.disk.rows(_NOTICE_TURNS)}
    for id, _, platform, ending, _, _ in turns:
        if platform != PLATFORM or id in noted:
            continue  # a subagent, or the report of one
        said = [each for each in observer.said(id) if each.role in ("assistant", "tool")]
        if ending == "answered" and not deaths and observer.received[id] != 1:
            machine.report(f"the end of turn {id} was reported {observer.received[id]} times")
        if ending == "answered" and (not said or said[-1].role != "assistant" or said[-1].calls):
            machine.report(f"turn {id} counts as answered without an answer")
        for message in _messages_to_send(said, ending, {text for turn, text in by_turn_and_text if turn == id}):
            if message.role == "assistant" and message.text.strip():
                delivery, head = by_turn_and_text.get((id, message.text)), message.text.split("\n")[0]
                same = [each for text, each in texts if text.startswith(head)]
                _check_shown(machine, network, message.text, delivery=delivery, same=same)
    if not any(delivery[5] for delivery in deliveries) and all(turn[3] == "answered" for turn in turns):
        for sent_message in network.sent_messages:
            if sent_message.text.endswith("…") and not sent_message.gone:
                machine.report(f"an unfinished answer stays: {sent_message.text[:40]}")


def _messages_to_send(said: list[Any], ending: str, enqueued: set[str]) -> list[Any]:
    """What a turn had said when it was stopped is kept, not sent."""
    cut_off = ending == "stopped" and bool(said) and said[-1].text not in enqueued
    return said[:-1] if cut_off else said


def _check_shown(machine: Machine, network: FakeNetwork, text: str, *, delivery: Any, same: list[Any]) -> None:
    """The text is in the chat once. If it is marked as uncertain it may be there twice, however often the
    process died, or not at all, and then the chat is notified. `same`: all deliveries with this text, as
    after a /retry."""
    if delivery is None:
        machine.report(f"nothing was enqueued for {text[:40]}")
        return
    head = text.split("\n")[0]
    chat = int(msgspec.json.decode(delivery[2])["address"]["chat"])
    there = [
        each
        for each in network.sent_messages
        if each.chat == chat and not each.gone and each.text.startswith(head) and not each.text.endswith("…")
    ]
    if len(there) > len(same) + sum(bool(each[5]) for each in same):
        machine.report(f"{delivery[0]} is there {len(there)} times: {head}")
    if not there and not (delivery[5] and delivery[3] == "failed"):
        machine.report(f"{delivery[0]} is not there ({delivery[3]} {delivery[6]}): {head}")
    if (
        delivery[5]
        and delivery[3] == "failed"
        and not any("My last message may not have been delivered" in each.text for each in network.sent_messages)
    ):
        machine.report(f"{delivery[0]} was given up, and the chat was not notified")
