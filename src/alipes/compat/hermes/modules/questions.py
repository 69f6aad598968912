"""`tools.clarify_gateway` and `tools.slash_confirm`: questions are asked and answered as chat messages here.

Both are empty: an adapter's own buttons find no open question and report it as expired.
"""

from typing import Any

pending_questions: dict[str, Any] = {}


def resolve_gateway_clarify(clarify_id: str, response: str) -> bool:
    """False: there is no such question."""
    return False


def mark_awaiting_text(clarify_id: str) -> bool:
    return False


def get_pending(session_key: str) -> dict[str, Any] | None:
    return None


async def resolve(session_key: str, confirm_id: str, choice: str, **_more: Any) -> str | None:
    return None


def clear(session_key: str) -> None:
    """Nothing is stored."""
