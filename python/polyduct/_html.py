"""Pictures and tables for notebooks: what ``_repr_html_`` of layouts, ports and stores gives."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from polyduct.errors import LayoutError

if TYPE_CHECKING:
    from polyduct._layouts import Box, Layout

MOST_BOXES = 1024
"""More than so many boxes are no picture but a grey field."""
WIDEST = 320
"""Pixels of a picture's longer side."""


def table(title: str, rows: Iterable[tuple[str, object]], picture: str = "") -> str:
    """Names and values, with a picture beside them."""
    cells = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(str(value))}</td></tr>'
        for name, value in rows
    )
    beside = f'<td style="padding-left:2em">{picture}</td>' if picture else ""
    return f'<table class="polyduct"><tr><td><b>{html.escape(title)}</b><table>{cells}</table></td>{beside}</tr></table>'


def listing(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a row for each thing."""
    head = "".join(f'<th style="text-align:left">{html.escape(name)}</th>' for name in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{html.escape(str(one))}</td>' for one in row) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def size(count: int) -> str:
    """A number of bytes, for people."""
    unit, value = "B", float(count)
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        unit, value = larger, value / 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def drawing(layout: Layout, own: int | None = None) -> str:
    """An SVG picture of who owns what, the part of unit ``own`` outlined; nothing where there is nothing to
    see.

    Two dimensions are drawn, those that are distributed where there are more: the array where the others are
    at index 0.
    """
    shape = layout.shape
    if not shape or 0 in shape:
        return ""
    found = _boxes(layout)
    if found is None:
        return ""
    down, across = _two(shape, [box for _, box in found])
    height, width = (shape[down] if down is not None else 1), (shape[across] if across is not None else 1)
    scale = WIDEST / max(height, width)
    # A long, thin array stays visible.
    tall, wide = max(height * scale, 16.0), max(width * scale, 16.0)
    marks = []
    for unit, box in found:
        if any(lo > 0 for k, (lo, _) in enumerate(box) if k not in (down, across)):
            continue
        (y0, y1), (x0, x1) = (box[k] if k is not None else (0, 1) for k in (down, across))
        top, left = y0 / height * tall, x0 / width * wide
        deep, broad = (y1 - y0) / height * tall, (x1 - x0) / width * wide
        edge = ' stroke="#000" stroke-width="2"' if unit == own else ' stroke="#fff" stroke-width="0.5"'
        marks.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{broad:.1f}" height="{deep:.1f}" fill="{colour(unit)}"{edge}>'
            f"<title>unit {unit}: {_words(box)}</title></rect>"
        )
        if broad >= 18 and deep >= 14:
            marks.append(
                f'<text x="{left + broad / 2:.1f}" y="{top + deep / 2:.1f}" font-size="11" font-family="sans-serif" '
                f'text-anchor="middle" dominant-baseline="central">{unit}</text>'
            )
    label = html.escape(f"{layout} over {shape} in {layout.units} units")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide + 2:.0f}" height="{tall + 2:.0f}" '
        f'viewBox="-1 -1 {wide + 2:.1f} {tall + 2:.1f}" role="img" aria-label="{label}">{"".join(marks)}</svg>'
    )


def colour(unit: int) -> str:
    """Neighbours differ: hues a golden angle apart."""
    return f"hsl({unit * 137.508 % 360:.0f},55%,{70 if unit % 2 else 78}%)"


def _boxes(layout: Layout) -> list[tuple[int, Box]] | None:
    """The boxes of all units; None where they are too many to be seen."""
    found: list[tuple[int, Box]] = []
    for unit in range(layout.units):
        try:
            found += [(unit, box) for box in layout.boxes(unit)]
        except LayoutError:
            return None
        if len(found) > MOST_BOXES or unit >= MOST_BOXES:
            return None
    return found


def _two(shape: tuple[int, ...], boxes: list[Box]) -> tuple[int | None, int | None]:
    """The dimensions that are drawn, downwards and across."""
    if len(shape) == 1:
        return None, 0
    cut = [k for k, n in enumerate(shape) if any(box[k] != (0, n) for box in boxes)]
    rest = [k for k in range(len(shape) - 1, -1, -1) if k not in cut]
    down, across = sorted([*cut, *rest][:2])
    return down, across


def _words(box: Box) -> str:
    return ", ".join(f"{lo}:{hi}" for lo, hi in box)
