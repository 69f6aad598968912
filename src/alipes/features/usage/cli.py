"""`alipes usage`: tokens and cost of the last days."""

from alipes.config.loader import load_settings
from alipes.console import render
from alipes.console.common import print_json, run_in_archive
from alipes.console.options import OptionParser
from alipes.features.usage.help import USAGE
from alipes.features.usage.report import lines, report

DEFAULT_DAYS = 30
MAX_DAYS = 3660


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes usage", USAGE, {"days": {"default": str(DEFAULT_DAYS)}})
    args = parser.parse_args(argv)
    if not args.days.isascii() or not args.days.isdecimal() or not 1 <= int(args.days) <= MAX_DAYS:
        parser.error(f"--days takes a number of days from 1 to {MAX_DAYS}")
    usage = run_in_archive(load_settings(), lambda archive: report(archive, int(args.days)))
    if args.json:
        print_json(usage)
    else:
        print("\n".join(render.sanitize(line) for line in lines(usage)))
    return 0
