"""What is shown of benchmarks is what was measured last: the page's table and both pictures."""

from pathlib import Path

import pytest
from bench import keeping, plots, rivals

DOCS = Path(__file__).parents[2] / "docs"
KEPT = keeping.load()


def test_the_page_has_the_rivals_as_they_were_measured_last():
    assert rivals.told(KEPT) in (DOCS / "benchmarks.md").read_text(), "make bench-rivals KEEP=1"


@pytest.mark.parametrize("name,drawn", [("latency", plots.latency), ("cold-start", plots.cold_start)])
def test_the_pictures_are_drawn_from_the_last_measurement(name, drawn):
    assert (DOCS / "pictures" / f"{name}.svg").read_text() == drawn(KEPT.rivals, plots.note(KEPT.rivals))
