"""Whether arrays that are to be filled share memory with each other, or with what they are filled from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyduct._arrays import Array
from polyduct.errors import Misuse

_WORK = 100_000
"""How many candidates for a common byte are tried, a few milliseconds' worth: it is a hard question in
general."""


def check_apart(out: Sequence[Array], parts: Sequence[Array]) -> None:
    """Raises an error where one of ``out`` shares memory with another, or with one of ``parts``."""
    arrays = [*out, *parts]
    # In the order of their first bytes, so that each is compared only with those that begin before it ends.
    spans = sorted((*_extent(array), k) for k, array in enumerate(arrays) if array.size)
    reaching: list[tuple[int, int]] = []
    for low, high, k in spans:
        reaching = [(end, other) for end, other in reaching if end > low]
        for _, other in reaching:
            if min(k, other) < len(out) and _may_share(arrays[k], arrays[other]):
                first, second = (_name(i, len(out)) for i in sorted((k, other)))
                raise Misuse(f"{first} overlaps {second}; what is filled must have memory of its own")
        reaching.append((high, k))


def _extent(array: Array) -> tuple[int, int]:
    """Where the first byte of an array lies, and where its last one ends."""
    first: int = array.__array_interface__["data"][0]
    steps = [(n - 1) * stride for n, stride in zip(array.shape, array.strides)]
    return first + sum(min(step, 0) for step in steps), first + sum(
        max(step, 0) for step in steps
    ) + array.itemsize


def _may_share(a: Array, b: Array) -> bool:
    """Whether two arrays, one of which begins within the other, share memory; also when that takes too long
    to find out."""
    # The types that numpy gives of its own allow its two special values alone.
    most: Any = _WORK
    try:
        return np.shares_memory(a, b, max_work=most)
    except RuntimeError:
        # numpy's TooHardError, which is elsewhere in each of its versions.
        return True


def _name(k: int, outs: int) -> str:
    return f"out[{k}]" if k < outs else f"parts[{k - outs}]"
