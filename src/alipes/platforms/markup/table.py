"""Tables as lines: a grid where that fits a phone, else one cell below the other. It reads no Markdown."""

from collections.abc import Sequence

from wcwidth import wcswidth

from alipes.platforms.markup import Mark, Span, Spans, plain

WIDEST = 64
_PRE = Mark("pre")


def drawn(rows: Sequence[Sequence[Spans]]) -> list[list[Span]]:
    """The lines of a table whose first row is its head."""
    cells = [[" ".join(plain(cell).split()) for cell in row] for row in rows]
    widths = [
        max(_width(row[column]) for row in cells if column < len(row)) for column in range(len(cells[0]))
    ]
    if sum(widths) + 3 * (len(widths) - 1) > WIDEST and len(rows) > 1 and len(widths) > 1:
        return _stacked(rows)
    lines = [_row(row, widths) for row in cells]
    lines.insert(1, "─┼─".join("─" * width for width in widths))
    return [[Span(line, (_PRE,))] for line in lines]


def _row(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=False)]
    return " │ ".join(padded).rstrip()


def _stacked(rows: Sequence[Sequence[Spans]]) -> list[list[Span]]:
    """Every cell on a line of its own, behind the name of its column; an empty line between rows."""
    head, *rest = rows
    lines: list[list[Span]] = []
    for number, row in enumerate(rest):
        if number:
            lines.append([])
        for name, cell in zip(head, row, strict=False):
            bold = [Span(span.text, (Mark("bold"), *span.marks)) for span in name]
            lines.append([*bold, Span(": " if name else ""), *cell])
    return lines


def _width(text: str) -> int:
    columns = len(text) if text.isascii() else wcswidth(text)
    return columns if columns >= 0 else len(text)
