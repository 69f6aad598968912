"""What must hold once all is settled: nothing lost, nothing doubled, everything in order."""

from collections import Counter
from typing import Any

import msgspec

from alipes.kernel.messages import ToolResult
from alipes.sessions.subagents.registry import PARENT_ENDED
from alipes.store.database import codec
from tests.simulation.fake_network import ME, Outside
from tests.simulation.machine import Machine
from tests.simulation.observer import Witness, unanswered
from tests.simulation.plan import Plan
from tests.simulation.process import PLATFORM

_NOTED = "SELECT id FROM turns WHERE json_extract(inbound, '$.notice') IS NOT NULL"
STOPS = {"user_stop", "superseded", "reset"}
_STOPPING = {"stop", "new", "undo", "retry"}
ENDINGS = {"answered", "stopped", "failed", "steered", "out_of_steps"}


def judge(machine: Machine, outside: Outside, witness: Witness, plan: Plan) -> None:
    turns = machine.disk.rows(
        "SELECT id, inbound_id, platform, ending, detail, number FROM turns ORDER BY number"
    )
    _messages(machine, outside, turns)
    _endings(machine, plan, turns)
    _transcripts(machine)
    debts = machine.disk.rows(
        "SELECT id, lane, outbound, state, sent_ids, uncertain_part, reason FROM outbox ORDER BY number"
    )
    _order(machine, debts)
    _answers(machine, outside, witness, turns, debts, plan)


def _messages(machine: Machine, outside: Outside, turns: list[Any]) -> None:
    """Each that was said became one turn, or the answer to a question; never both."""
    became = Counter(inbound for _, inbound, _, _, _, _ in turns)
    became.update(id for (id,) in machine.disk.rows("SELECT id FROM inbox WHERE batch = 'answer'"))
    for (chat, number), message in outside.said.items():
        count = became[f"{ME}:{chat}:{message}"]
        if count != 1:
            machine.blame(f"message {number} of chat {chat} became {count} turns")
    for message, chat in outside.answers.items():
        if became[f"{ME}:{chat}:{message}"] > 1:
            machine.blame(f"an answer in chat {chat} became a message as well")


def _endings(machine: Machine, plan: Plan, turns: list[Any]) -> None:
    calm = not plan.faults
    stops = plan.busy == "interrupt" or any(each.kind in _STOPPING for each in plan.deeds)
    for id, _, _, ending, detail, _ in turns:
        if ending not in ENDINGS:
            machine.blame(f"turn {id} has no ending: {ending}")
        forsaken = ending == "stopped" and detail == PARENT_ENDED  # with whom it worked for
        if (calm and ending == "failed") or (
            ending == "stopped" and (not stops or detail not in STOPS) and not forsaken
        ):
            machine.blame(f"turn {id} {ending} without a reason: {detail}")


def _transcripts(machine: Machine) -> None:
    for (session,) in machine.disk.rows("SELECT DISTINCT session_id FROM messages"):
        sql = "SELECT message FROM messages WHERE session_id = ? ORDER BY number"
        messages = [codec.message_decoder.decode(row) for (row,) in machine.disk.rows(sql, session)]
        left = not machine.disk.rows("SELECT 1 FROM leases WHERE session_id = ?", session)
        if left and messages and messages[-1].calls:
            messages.pop()  # left while nobody lived it: what is said there next answers them first
        if wrong := unanswered(messages):
            machine.blame(f"in the transcript of {session}: {wrong}")
        parts = [part for each in messages for part in each.parts if isinstance(part, ToolResult)]
        if any("nobody is available to approve it" in part.text for part in parts):
            machine.blame(f"a call in {session} was refused, and nobody was asked")


def _order(machine: Machine, debts: list[Any]) -> None:
    """Deliveries appear in a chat in the order they were enqueued; answers may replace their drafts."""
    last: dict[tuple[str, bool], int] = {}
    for id, lane, outbound, state, paid, _, _ in debts:
        if state != "sent":
            continue
        turn = bool(msgspec.json.decode(outbound).get("turn"))
        for message in map(int, msgspec.json.decode(paid)):
            if message <= last.get((lane, turn), 0):
                machine.blame(f"{id} appears before an earlier message")
            last[lane, turn] = message


def _answers(
    machine: Machine, outside: Outside, witness: Witness, turns: list[Any], debts: list[Any], plan: Plan
) -> None:
    texts = [(str(msgspec.json.decode(debt[2]).get("text")), debt) for debt in debts]
    owed = {(debt[0].partition(":")[0], text): debt for text, debt in texts}
    deaths = sum(each.kind not in ("net", "hook") for each in plan.faults)
    noted = {id for (id,) in machine.disk.rows(_NOTED)}
    for id, _, platform, ending, _, _ in turns:
        if platform != PLATFORM or id in noted:
            continue  # it works for another, or brings what such a one said
        said = [each for each in witness.said(id) if each.role in ("assistant", "tool")]
        if ending == "answered" and not deaths and witness.received[id] != 1:
            machine.blame(f"the end of turn {id} was reported {witness.received[id]} times")
        if ending == "answered" and (not said or said[-1].role != "assistant" or said[-1].calls):
            machine.blame(f"turn {id} counts as answered without an answer")
        for message in said:
            if message.role == "assistant" and message.text.strip():
                debt, head = owed.get((id, message.text)), message.text.split("\n")[0]
                same = [each for text, each in texts if text.startswith(head)]
                _shown(machine, outside, message.text, debt=debt, same=same)
    if not any(debt[5] for debt in debts) and all(turn[3] == "answered" for turn in turns):
        for bubble in outside.bubbles:
            if bubble.text.endswith("…") and not bubble.gone:
                machine.blame(f"an unfinished answer stays: {bubble.text[:40]}")


def _shown(machine: Machine, outside: Outside, text: str, *, debt: Any, same: list[Any]) -> None:
    """What was said is there, once; what is marked as uncertain may be there twice, however often we died, or
    not, and then the chat is notified. `same`: all deliveries with the same text, as after a /retry."""
    if debt is None:
        machine.blame(f"nothing was enqueued for {text[:40]}")
        return
    head = text.split("\n")[0]
    chat = int(msgspec.json.decode(debt[2])["address"]["chat"])
    there = [
        each
        for each in outside.bubbles
        if each.chat == chat and not each.gone and each.text.startswith(head) and not each.text.endswith("…")
    ]
    if len(there) > len(same) + sum(bool(each[5]) for each in same):
        machine.blame(f"{debt[0]} is there {len(there)} times: {head}")
    if not there and not (debt[5] and debt[3] == "failed"):
        machine.blame(f"{debt[0]} is not there ({debt[3]} {debt[6]}): {head}")
    if (
        debt[5]
        and debt[3] == "failed"
        and not any("My last message may not have been delivered" in each.text for each in outside.bubbles)
    ):
        machine.blame(f"{debt[0]} was given up, and the chat was not notified")
