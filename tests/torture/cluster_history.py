"""Reads the history of a cluster of light workers for the checker."""

import json
import re
from typing import Any

from tests.torture.cluster_checker import (
    Asked,
    ClaimFact,
    DeliveryFact,
    EffectFact,
    History,
    MessageFact,
    SendFact,
    TurnFact,
)
from tests.world.cluster import LightCluster, MessageLoad
from tests.world.cluster_worker import PLATFORM

_EPOCH = re.compile(r"\be(\d+)\b")
_COMMITTED = "extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8"


def load_history(cluster: LightCluster, load: MessageLoad, *, server_crashed: bool = False) -> History:
    """On SQLite the times of commits and the claims are missing: their rules hold trivially."""
    query, remote = cluster.query, bool(cluster.url)
    messages = f"""SELECT number, turn_number, session_id, role, message, {_COMMITTED if remote else "created"}
        FROM messages ORDER BY number"""
    claims = f"SELECT key, epoch, holder, {_COMMITTED} FROM history_claims"
    return History(
        asked=[Asked(f"agent:main:{PLATFORM}:dm:{each.chat}", each.id, each.token) for each in load.accepted],
        turns=[TurnFact(*row) for row in query("SELECT number, id, key, inbound_id, ending FROM turns")],
        messages=[_read_message(*row) for row in query(messages)],
        claims=[ClaimFact(*row) for row in query(claims)] if remote else [],
        believed=_believed_claims(cluster),
        effects=[EffectFact(**line) for line in cluster.effects],
        deliveries=[
            DeliveryFact(lane, json.loads(outbound).get("text", ""), state, bool(uncertain))
            for lane, outbound, state, uncertain in query("SELECT lane, outbound, state, uncertain_part FROM outbox")
        ],
        sends=[SendFact(line["lane"], line["text"]) for line in cluster.sends],
        server_crashed=server_crashed,
    )


def _believed_claims(cluster: LightCluster) -> list[ClaimFact]:
    return [
        ClaimFact(event["key"], event["epoch"], event["worker"], event["at"])
        for worker in cluster.workers
        for event in worker.events
        if event["kind"] == "claimed"
    ]


def _read_message(number: int, turn: int, session: str, role: str, raw: str, at: float) -> MessageFact:
    parts: list[dict[str, Any]] = json.loads(raw)["parts"]
    text = " ".join(part.get("text", "") for part in parts)
    calls = tuple(part["id"] for part in parts if part.get("type") == "call")
    answers = next((part["call_id"] for part in parts if part.get("type") == "result"), "")
    epoch = _EPOCH.search(text)
    return MessageFact(number, turn, session, role, text, calls, answers, int(epoch[1]) if epoch else 0, at)
