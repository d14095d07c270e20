"""Arrays of JAX of which each process has a part. Its number is ``jax.process_index()``; the devices of a
process are one unit together."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from polyduct._grids import merged, text_of_boxes
from polyduct._held import Held
from polyduct.errors import Misuse

if TYPE_CHECKING:
    from polyduct import _arrays
    from polyduct._layouts import Box


def is_array(what: object) -> bool:
    """Whether this is an array of JAX, or what one would be like (`jax.ShapeDtypeStruct`)."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(what, (jax.Array, jax.ShapeDtypeStruct))


def is_sharded(what: Any) -> bool:
    """Whether it is one whose devices are several processes'."""
    return is_array(what) and what.sharding is not None and not what.sharding.is_fully_addressable


def held(what: Any) -> Held:
    """How the processes hold it, by its sharding; with what it lists of this process's devices."""
    jax, shape = sys.modules["jax"], tuple(what.shape)
    units = jax.process_count()
    boxes: list[list[Box]] = [[] for _ in range(units)]
    for device, index in what.sharding.devices_indices_map(shape).items():
        boxes[device.process_index].append(_box(index, shape))
    text = text_of_boxes(shape, [merged(found) for found in boxes])
    shards = getattr(what, "addressable_shards", None)
    mine = None if shards is None else [_box(shard.index, shape) for shard in shards]
    return Held("the array's sharding", shape, np.dtype(what.dtype), text, jax.process_index(), units, mine)


def part(what: Any) -> _arrays.Array:
    """This process's part in memory that cannot be written: the shard's own where that is all of it and
    lies in main memory, else a copy. Of several boxes their elements, one box behind the other."""
    if not hasattr(what, "addressable_shards"):
        raise Misuse("a jax.ShapeDtypeStruct has no elements")
    shape = tuple(what.shape)
    shards = {_box(shard.index, shape): shard.data for shard in what.addressable_shards}
    if len(shards) == 1:
        [only] = shards.values()
        return np.asarray(only)
    boxes = merged(shards)
    if len(boxes) == 1:
        start = [lo for lo, _ in boxes[0]]
        whole = np.empty([hi - lo for lo, hi in boxes[0]], what.dtype)
        for box, data in shards.items():
            whole[tuple(slice(lo - at, hi - at) for (lo, hi), at in zip(box, start))] = np.asarray(data)
    else:
        parts = [np.asarray(shards[box]).reshape(-1) for box in boxes]
        whole = np.concatenate(parts) if parts else np.empty(0, what.dtype)
    whole.flags.writeable = False
    return whole


def _box(index: tuple[slice, ...], shape: tuple[int, ...]) -> Box:
    ranges = [side.indices(extent) for side, extent in zip(index, shape)]
    return tuple((lo, hi) for lo, hi, _ in ranges)
