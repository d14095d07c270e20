"""Layouts from boxes: for what says which boxes of an array each process has, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from polyduct import _native
from polyduct.errors import LayoutError

if TYPE_CHECKING:
    from polyduct._layouts import Box

Boxes: TypeAlias = "Sequence[Sequence[Box]]"
"""Those of each unit."""

EVERYTHING = "..."
"""The layout in which every unit has all of an array."""


def merged(boxes: Iterable[Box]) -> list[Box]:
    """The boxes without those that are empty or there twice, in order; one box if together they are one.

    >>> merged([((2, 4), (0, 3)), ((0, 2), (0, 3)), ((0, 2), (0, 3))])
    [((0, 4), (0, 3))]
    """
    found = sorted({box for box in boxes if all(lo < hi for lo, hi in box)})
    if len(found) < 2:
        return found
    around = tuple((min(lo for lo, _ in side), max(hi for _, hi in side)) for side in zip(*found))
    # Those of one object do not overlap: as many elements as the box around them have is that box.
    return [around] if sum(map(volume, found)) == volume(around) else found


def volume(box: Box) -> int:
    """How many elements a box has."""
    size = 1
    for lo, hi in box:
        size *= hi - lo
    return size


def boxes_of(text: str, shape: Sequence[int], units: int, unit: int) -> list[Box]:
    """The boxes of a unit in a layout, as `merged` gives them. Raises `LayoutError` for what is none."""
    return merged(_native.Layout(text, list(shape), units, "u8").boxes(unit, False))


def text_of_boxes(shape: Sequence[int], boxes: Boxes) -> str:
    """The layout in which each unit has these boxes: words on a grid where they are one, else the boxes.

    Boxes of a unit lie in its memory in the order in which they are given.

    >>> text_of_boxes((4, 6), [[((0, 2), (0, 6))], [((2, 4), (0, 6))]])
    'block[0],*@2'
    >>> text_of_boxes((4,), [[((0, 1),)], [((3, 4),)], [((1, 3),)]])
    'boxes(0:1|3:4|1:3)'
    """
    whole = tuple((0, n) for n in shape)
    if all(list(found) == [whole] for found in boxes) or 0 in shape:
        return EVERYTHING
    text = _regular(tuple(shape), boxes)
    if text is None or not _is(text, shape, boxes):
        text = f"boxes({'|'.join('+'.join(map(_written, found)) or '-' for found in boxes)})"
    return text


def _written(box: Box) -> str:
    return ",".join(f"{lo}:{hi}" for lo, hi in box)


def _is(text: str, shape: Sequence[int], boxes: Boxes) -> bool:
    """Whether that is the layout, for each unit."""
    try:
        return all(boxes_of(text, shape, len(boxes), unit) == list(found) for unit, found in enumerate(boxes))
    except LayoutError:
        return False


def _regular(shape: tuple[int, ...], boxes: Boxes) -> str | None:
    """Words on a grid, as the first boxes have them, for somebody to compare with all."""
    if any(len(found) != 1 for found in boxes):
        return None
    starts = [sorted({found[0][dim][0] for found in boxes}) for dim in range(len(shape))]
    place = [tuple(starts[dim].index(box[dim][0]) for dim in range(len(shape))) for [box] in boxes]
    # The axes of the grid, fastest first: how many units, the dimension that they go along and how far.
    axes: list[tuple[int, int | None, int]] = []
    stride = 1
    while stride < len(place):
        along = [dim for dim in range(len(shape)) if place[stride][dim] != place[0][dim]]
        if len(along) > 1:
            return None
        dim = along[0] if along else None
        step = place[stride][along[0]] - place[0][along[0]] if along else 0
        count = 1
        while (count + 1) * stride <= len(place) and place[count * stride] == tuple(
            at + count * step if k == dim else at for k, at in enumerate(place[0])
        ):
            count += 1
        while len(place) % (count * stride):
            count -= 1
        if count < 2 or step < 0:
            return None
        axes.append((count, dim, step))
        stride *= count
    axes.reverse()
    words = []
    for dim, extent in enumerate(shape):
        mine = sorted((n for n, axis in enumerate(axes) if axis[1] == dim), key=lambda n: -axes[n][2])
        words.append(_word(extent, starts[dim], mine) if mine else "*")
    return f"{','.join(words)}@{'x'.join(str(axis[0]) for axis in axes)}"


def _word(extent: int, starts: list[int], axes: list[int]) -> str:
    """How a dimension is cut."""
    at, parts = ",".join(map(str, axes)), len(starts)
    size, more = divmod(extent, parts)
    if starts == [n * -(-extent // parts) for n in range(parts)]:
        return f"block[{at}]"
    if starts == [n * size + min(n, more) for n in range(parts)]:
        return f"balanced[{at}]"
    return f"cut({','.join(map(str, starts))})[{at}]"
