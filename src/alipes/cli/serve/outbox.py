"""`alipes serve outbox`: what is owed to chats, and what was given up. It sends nothing itself."""

import sys

import msgspec

from alipes.cli import render
from alipes.cli.screen import terminal_width
from alipes.cli.store import in_store
from alipes.config.settings import Settings
from alipes.kernel.delivery import Debt, DebtState
from alipes.kernel.wording import ago

LISTED = 200
_OPEN: tuple[DebtState, ...] = ("owed", "trying", "dead", "expired")
_STATES: dict[DebtState, str] = {
    "owed": "waits",
    "trying": "is being sent",
    "sent": "delivered",
    "dead": "given up",
    "expired": "too late",
}


def show(settings: Settings, *, all: bool, json: bool) -> int:
    debts = in_store(settings, lambda store: store.outbox.look(*(() if all else _OPEN), limit=LISTED))
    if json:
        print(msgspec.json.encode(debts).decode())
        return 0
    if not debts:
        print("Nothing is owed, and nothing was given up.")
        return 0
    width = terminal_width(sys.stdout)
    for line in render.table([("NUMBER", "STATE", "TRIES", "SINCE", "TO", "TEXT", "WHY"), *map(_row, debts)]):
        print(render.cut(line, width) if width else line.rstrip())
    return 0


def again(settings: Settings, number: int) -> int:
    if in_store(settings, lambda store: store.outbox.again(number)):
        print(f"{number} is owed again.")
        return 0
    sys.stderr.write(f"alipes serve outbox: there is no {number} among those that were given up\n")
    return 1


def drop(settings: Settings, number: int) -> int:
    if in_store(settings, lambda store: store.outbox.drop(number)):
        print(f"{number} is not sent any more.")
        return 0
    sys.stderr.write(f"alipes serve outbox: there is no {number} that waits or was given up\n")
    return 1


def _row(debt: Debt) -> tuple[str, ...]:
    said, state = debt.outbound, _STATES[debt.state]
    place = ":".join(filter(None, (said.address.platform, said.address.chat, said.address.thread)))
    cells = (
        str(debt.number),
        f"{state}, perhaps twice" if debt.uncertain else state,
        str(debt.attempts),
        ago(debt.created),
        place,
        render.one_line(said.text or ", ".join(each.name for each in said.media), 40),
        render.one_line(debt.why, 60),
    )
    return tuple(map(render.harmless, cells))
