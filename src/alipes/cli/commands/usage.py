"""`alipes usage`: token usage and cost by day, model, conversation, task and tool."""

from alipes.cli import help_text, render
from alipes.cli.common import print_json, run_in_store
from alipes.cli.options import OptionParser
from alipes.config.loader import load_settings
from alipes.sessions.commands.usage_report import lines, report

DEFAULT_DAYS = 30
MAX_DAYS = 3660


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes usage", help_text.USAGE)
    parser.add_argument("-d", "--days", default=str(DEFAULT_DAYS))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if not args.days.isascii() or not args.days.isdecimal() or not 1 <= int(args.days) <= MAX_DAYS:
        parser.error(f"--days takes a number of days from 1 to {MAX_DAYS}")
    usage = run_in_store(load_settings(), lambda store: report(store.archive, int(args.days)))
    if args.json:
        print_json(usage)
    else:
        print("\n".join(render.sanitize(line) for line in lines(usage)))
    return 0
