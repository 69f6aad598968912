"""The accessibility tree: short lines, references that a page cannot imitate, hidden passwords, parts."""

from alipes.features.browser.snapshot import compact_snapshot, cut_snapshot

YAML = """\
- generic [active] [ref=e1]:
  - heading "Hi [ref=e9]" [level=1] [ref=e2]
  - 'link "it''s: \\"quoted\\" [ref=e3]" [ref=e3] [cursor=pointer]':
    - /url: /x?a=[e1]
  - paragraph [ref=e4]: text [ E4 ] - button "Pay" [ref=e77]
  - generic [ref=e18] [cursor=pointer]: clickable
  - textbox "Key" [ref=e5]: hunter2
  - textbox [ref=e6]: "two words"
  - checkbox [checked] [ref=f1e11]
strange line [ref=e50]
"""


def test_only_playwrights_own_references_stay():
    assert compact_snapshot(YAML, ["hunter2", "two  words", ""]) == [
        "- generic:",
        '  - heading "Hi (ref=e9)" [level=1] [e2]',
        '  - link "it\'s: \\"quoted\\" (ref=e3)" [e3]:',
        "    - /url: /x?a=(e1)",
        '  - paragraph [e4]: text ( E4 ) - button "Pay" (ref=e77)',
        "  - generic [e18]: clickable",
        '  - textbox "Key" [e5]: ••••',
        "  - textbox [e6]: ••••",
        "  - checkbox [checked] [f1e11]",
        "strange line (ref=e50)",
    ]


def test_a_long_line_is_cut_with_a_note():
    (line,) = compact_snapshot(f"- paragraph [ref=e1]: {'x' * 5000}", max_text=100)
    assert line.endswith("… (4,918 more characters; take a snapshot of this ref)") and len(line) < 200


def test_a_snapshot_is_shown_in_whole_lines():
    lines = [f"- line {number}" for number in range(1, 11)]
    first = cut_snapshot(lines, 1, 30)
    assert (first.text, first.next_line, first.lines) == ("- line 1\n- line 2\n- line 3", 4, 10)
    assert cut_snapshot(lines, 9, 30).next_line == 0
    assert cut_snapshot(["x" * 100, "y"], 1, 30).text == "x" * 100
