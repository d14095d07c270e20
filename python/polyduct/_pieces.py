"""Which boxes of a writer's arrays make an array of a reader: ``of=`` of `polyduct.Array`."""

from __future__ import annotations

from typing import Any, TypeAlias

from polyduct._arrays import natural, refused
from polyduct.errors import Misuse

Index: TypeAlias = "list[tuple[int, int | None, bool]]"
"""Of each dimension from where to where, and whether it goes away."""

Pieces: TypeAlias = "tuple[list[tuple[str, Index, Index | None]], int, bool]"
"""Names with boxes and where they lie; a dimension, and whether it is a new one."""


def pieces(of: object, axis: object, stack: object) -> Pieces:
    """What an array is made of, for the native module: see `polyduct.Array`."""
    if axis is not None and stack is not None:
        raise Misuse(f"axis is {axis!r} and stack is {stack!r}; pieces follow each other in one of these ways")
    given = list(of) if isinstance(of, list) else [of]
    if not given:
        raise Misuse("of is []; expected the names of what an array is made of")
    along = natural("axis" if stack is None else "stack", (axis or 0) if stack is None else stack)
    return [_piece(one) for one in given], along, stack is not None


def _piece(given: object) -> tuple[str, Index, Index | None]:
    if isinstance(given, str):
        return given, [], None
    if isinstance(given, tuple) and 1 <= len(given) <= 3 and isinstance(given[0], str):
        indices = [_index(index) for index in given[1:]]
        return given[0], indices[0] if indices else [], indices[1] if len(indices) > 1 else None
    raise refused("of", f"{given!r}; expected a name, or (name, index), or (name, index, place)")


def _index(index: Any) -> Index:
    """An index of NumPy, ``numpy.s_[...]``, of whole numbers and slices that count from the start."""
    return [_along(one) for one in (index if isinstance(index, tuple) else (index,))]


def _along(one: Any) -> tuple[int, int | None, bool]:
    if isinstance(one, slice):
        if one.step not in (None, 1):
            raise Misuse(f"an index of of is {one!r}; slices of boxes have no step")
        start = 0 if one.start is None else natural("the start of a slice of of", one.start)
        return start, None if one.stop is None else natural("the end of a slice of of", one.stop), False
    if hasattr(one, "__index__"):
        return natural("an index of of", one), None, True
    raise refused("of", f"{one!r} as an index; expected whole numbers and slices")
