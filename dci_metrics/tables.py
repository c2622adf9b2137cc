"""Figures as text for a terminal."""

from collections.abc import Sequence


def percent(value: float | None) -> str:
    """A fraction as percent with two decimals, as the paper prints it."""
    return "–" if value is None else f"{100 * value:.2f}"


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Columns under a header row: the first to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:]])
