"""The terminal beside the examples of CommonMark and of GitHub's extensions: the same lines, but for listed reasons."""

import pytest

from tests.page.markdown_examples import COMMONMARK, GFM, SAMPLES, expected_tree
from tests.unit.console.markdown.terminal_tree import join_lines, read_terminal, read_tree

pytestmark = pytest.mark.deadline(120)
EXCEPTIONS: dict[str, set[int | str]] = {
    "indented text is no code: models indent below lists, and a line is shown before the next one is known": {
        *(1, 2, 3, 5, 6, 7, 8, 18, 36, 48, 69, 85, 100, 107, 110, 111, 112, 114, 115, 116, 117, 118, 134, 182, 183),
        *(184, 191, 211, 225, 231, 236, 252, 253, 254, 257, 264, 270, 271, 272, 273, 274, 278, 286, 287, 288, 289),
        *(290, 309, 313),
    },
    "links by reference are shown as they are written: a definition may come after the line, which is final by then": {
        *(23, 33, 192, 193, 194, 195, 196, 198, 200, 202, 203, 204, 205, 206, 207, 208, 210, 214, 215, 216, 217),
        *(218, 317, *range(527, 546), 549, 550, *range(553, 572), 573, 576, 577, *range(582, 590), 591, 592, 593),
        *("defs", "footnote"),
    },
    "a heading that is underlined has one line, and two signs at least": {81, 82, 83, 95},
    "HTML is shown as it is written, also the marks in it": {
        *(21, 31, 148, 150, 151, 155, 156, 158, 159, 161, 162, 163, 164, 165, 166, 177, 178, 186, 189, 632)
    },
    "a picture is shown with its address": {517, 520, 572, 574, 575, 578, 579, 580, 581},
    "formulas are drawn in letters": {"blockmath", "blockmath2", "bracketmath", "inlinemath", "latexenv"},
    "a bar in code does not end a cell, as models mean it; cells too many are shown": {"gfm-204", "table"},
    "a task has a box": {"gfm-279", "gfm-280", "taskmix"},
}
CASES = [
    *((each["number"], each["markdown"], expected_tree(each)) for each in COMMONMARK),
    *((f"gfm-{each['number']}", each["markdown"], expected_tree(each)) for each in GFM),
    *((name, each["markdown"], each["shown"]) for name, each in SAMPLES.items()),
]


@pytest.mark.parametrize("step", [100_000, 1], ids=["whole", "by character"])
def test_the_terminal_shows_the_examples_but_for_listed_exceptions(step):
    assert len(CASES) == 652 + 24 + 33
    different = {
        name for name, text, tree in CASES if join_lines(read_terminal(text, step)) != join_lines(read_tree(tree))
    }
    listed = {name for names in EXCEPTIONS.values() for name in names}
    assert (different - listed, listed - different) == (set(), set())
