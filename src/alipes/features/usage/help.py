"""The help page of `alipes usage`."""

USAGE = """\
usage: alipes usage [--days N] [--json]

Token usage and cost of the last N days, including today: a bar for each day, and totals
by model, conversation, task (answers, compaction, titles, ...), tool and key. Calls without a
known price are marked; their tokens count, their cost does not.

options:
  -d, --days N          number of days (default 30)
  --json                print one JSON document instead of text
  -h, --help            show this page
"""
