"""`alipes usage`: what models used, by day, model, conversation, task and tool. It asks none."""

import msgspec

from alipes.cli import help_text, render
from alipes.cli.common import in_store
from alipes.cli.options import Words
from alipes.config.settings import load
from alipes.sessions.commands.usage_report import lines, report

DAYS = 30
LONGEST = 3660


def run(argv: list[str]) -> int:
    words = Words("alipes usage", help_text.USAGE)
    words.add_argument("-d", "--days", default=str(DAYS))
    words.add_argument("--json", action="store_true")
    given = words.parse_args(argv)
    if not given.days.isascii() or not given.days.isdecimal() or not 1 <= int(given.days) <= LONGEST:
        words.error(f"--days takes a number of days from 1 to {LONGEST}")
    told = in_store(load(), lambda store: report(store.archive, int(given.days)))
    if given.json:
        print(msgspec.json.encode(told).decode())
    else:
        print("\n".join(render.harmless(line) for line in lines(told)))
    return 0
