"""The benchmark page shows the last measurement: its table and both pictures."""

from pathlib import Path

import pytest
from bench import plots, results, rivals

DOCS = Path(__file__).parents[2] / "docs"
KEPT = results.load()


def test_the_table_of_rivals_is_that_of_the_last_measurement():
    assert rivals.format_page_section(KEPT) in (DOCS / "benchmarks.md").read_text(), "make bench-rivals KEEP=1"


@pytest.mark.parametrize("name,drawn", [("latency", plots.latency), ("cold-start", plots.cold_start)])
def test_the_pictures_are_drawn_from_the_last_measurement(name, drawn):
    assert (DOCS / "pictures" / f"{name}.svg").read_text() == drawn(KEPT.rivals, plots.note(KEPT.rivals))
