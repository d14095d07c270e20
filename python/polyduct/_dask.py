"""How arrays of Dask are held: each chunk is what one unit has, in the order of the blocks, row-major."""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any

from polyduct._grids import text_of_boxes
from polyduct.errors import Misuse


def is_array(what: object) -> bool:
    """Whether this is an array of Dask."""
    array = sys.modules.get("dask.array")
    return array is not None and isinstance(what, array.Array)


def text_of(what: Any) -> str:
    """The layout, of as many units as there are chunks. Raises `Misuse` for chunks whose sizes are not known."""
    if any(math.isnan(n) for sizes in what.chunks for n in sizes):
        raise Misuse(f"the chunks of {what!r} have sizes that are not known; expected compute_chunk_sizes() before")
    starts = [[0, *itertools.accumulate(int(n) for n in sizes)] for sizes in what.chunks]
    sides = [list(itertools.pairwise(at)) for at in starts]
    return text_of_boxes(what.shape, [[box] for box in itertools.product(*sides)])
