"""What an index chooses of an array that is somewhere else: as NumPy has it, but nothing is there to be
indexed yet.

| index | read |
|---|---|
| integers, slices, ``...``, ``None`` | what they choose, and nothing else |
| arrays or lists of integers or booleans, with or without those | the box around what they choose |
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from polyduct.errors import BadIndex

Indices = tuple[int, int, int]
"""The first, how many, and from one to the next, which is more than 0."""


class Chosen(NamedTuple):
    """A box, and what is to be done to the array that it gives."""

    of: list[Indices]
    """Of each dimension."""
    then: tuple[Any, ...]
    """Gives of an array of these indices what was asked for: by a view, but where `fancy`."""
    fancy: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(count for _, count, _ in self.of)


def chosen(key: Any, shape: tuple[int, ...]) -> Chosen:
    """What an index chooses of an array of this shape; `BadIndex` if it is none."""
    parts = _expand(key if isinstance(key, tuple) else (key,), shape)
    fancy = any(isinstance(part, np.ndarray) for part in parts)
    of: list[Indices] = []
    then: list[Any] = []
    for part in parts:
        if part is None or part is Ellipsis:
            then.append(part)
            continue
        dim, n = len(of), shape[len(of)]
        if isinstance(part, slice):
            indices = _range(part, n)
            count = len(indices)
            forward = indices.step > 0
            # From one index there is no step to the next: it may be larger than 64 bits.
            step = abs(indices.step) if count > 1 else 1
            of.append((min(indices[0], indices[-1]), count, step) if count else (0, 0, 1))
            then.append(slice(None) if forward else slice(None, None, -1))
        elif isinstance(part, np.ndarray):
            given = (
                part.astype(np.int64, casting="same_kind") if part.size else np.zeros(part.shape, np.int64)
            )
            if given.size and not (-n <= int(given.min()) and int(given.max()) < n):
                raise BadIndex(f"an index goes beyond dimension {dim}, of size {n}")
            given = np.where(given < 0, given + n, given)
            low, high = (int(given.min()), int(given.max()) + 1) if given.size else (0, 0)
            of.append((low, high - low, 1))
            then.append(given - low)
        else:
            index = operator.index(part)
            if not -n <= index < n:
                raise BadIndex(f"index {index} is out of bounds for dimension {dim} of size {n}")
            of.append((index % n, 1, 1))
            then.append(0)
    return Chosen(of, tuple(then), fancy)


def _range(part: slice, n: int) -> range:
    try:
        return range(*part.indices(n))
    except (TypeError, ValueError) as e:
        raise BadIndex(f"{part!r}: {e}") from None


def _expand(key: tuple[Any, ...], shape: tuple[int, ...]) -> list[Any]:
    """The parts of an index, with one for each dimension, and ``...`` and ``None`` where they were."""
    parts: list[Any] = []
    for part in key:
        if part is None or part is Ellipsis or isinstance(part, slice):
            parts.append(part)
        elif isinstance(part, (bool, np.bool_)):
            raise BadIndex(f"{part!r} is no index of an array in a store")
        elif hasattr(part, "__index__") and getattr(part, "ndim", 0) == 0:
            parts.append(part)
        else:
            parts.extend(_arrays(part))
    dims = sum(part is not None and part is not Ellipsis for part in parts)
    if dims > len(shape):
        raise BadIndex(f"{dims} indices for an array of {len(shape)} dimensions")
    dots = [at for at, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1:
        raise BadIndex("an index has one `...` at most")
    missing = [slice(None)] * (len(shape) - dims)
    # One `...` stays: with it NumPy gives an array also where all dimensions have an integer.
    at = dots[0] + 1 if dots else len(parts)
    return parts[:at] + missing + parts[at:]


def _arrays(part: Any) -> list[Any]:
    try:
        array = np.asarray(part)
    except ValueError as e:
        raise BadIndex(f"an index is no array: {e}") from None
    if array.dtype == np.bool_:
        return list(array.nonzero()) if array.ndim == 1 else _no_mask(array)
    if array.dtype.kind not in "iu" and array.size:
        raise BadIndex(
            f"{part!r} is no index: expected integers, slices, ... or None, or an array of integers"
        )
    return [array]


def _no_mask(array: Any) -> list[Any]:
    raise BadIndex(
        f"a mask of {array.ndim} dimensions is no index of an array in a store; expected one of 1 dimension"
    )
