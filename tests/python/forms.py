"""What the tests of standard files share: values, and units that write and read them."""

from __future__ import annotations

from typing import Any

import numpy as np
from conftest import together

import polyduct

COMMON = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
SHAPES: list[tuple[int, ...]] = [(6, 10), (1,), (), (0, 3), (5, 1, 7)]


def values(shape: tuple[int, ...], dtype: Any, seed: int = 1) -> np.ndarray:
    """Any values of a type, none of them NaN."""
    numbers = np.random.default_rng(seed).integers(0, 2 if np.dtype(dtype) == bool else 100, shape)
    return np.asarray(numbers).astype(dtype)


def stars(shape: tuple[int, ...]) -> str:
    return ",".join("*" * max(1, len(shape)))


def write(url: object, steps: list[np.ndarray], layout: str, units: int, **options: Any) -> None:
    """Writes with units in threads."""

    def unit(k: int) -> None:
        shape, dtype = steps[0].shape, steps[0].dtype
        with polyduct.open(
            str(url),
            "w",
            shape=shape,
            dtype=dtype,
            layout=layout,
            unit=k,
            units=units,
            program="w",
            timeout=30,
            **options,
        ) as out:
            # An array of nothing has no boxes.
            box = [*out.layout.boxes(k), [(0, n) for n in shape]][0]
            for full in steps:
                out.write(np.array(full[tuple(slice(*r) for r in box)], order="C"))

    together(*(lambda k=k: unit(k) for k in range(units)))


def read(url: object, layout: str, unit: int = 0, units: int = 1, **options: Any) -> list[np.ndarray]:
    return [
        b.copy()
        for b in polyduct.open(str(url), layout=layout, unit=unit, units=units, program="r", **options)
    ]


def same(a: np.ndarray, b: np.ndarray) -> None:
    assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
