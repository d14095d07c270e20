"""What mpi4py's communicators and datatypes say of how an array is held. The units are a communicator's ranks.

A `Cartcomm` has a block of the array in each process: dimension by dimension along its own, cut as ``block``
cuts, pieces of ⌈N/P⌉ in order, the last ones short or empty; dimensions of the array beyond those of the
communicator are not cut. Subarray and darray types say where in the whole array a process's elements lie, as
MPI's file views do: their sizes are the whole's, and the elements lie packed in memory, in the type's order.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyduct._grids import boxes_of, text_of_boxes, volume
from polyduct._held import Held
from polyduct.errors import Misuse

if TYPE_CHECKING:
    from polyduct._layouts import Box


def is_held(what: object) -> bool:
    """Whether this is a communicator or a datatype of mpi4py."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and isinstance(what, (mpi.Comm, mpi.Datatype))


def held(what: Any, shape: Sequence[int] | None, dtype: Any, comm: Any) -> Held | None:
    """How the processes of a communicator hold an array, by a `Cartcomm` and the array's shape and dtype, or
    by a subarray or darray type; None for anything else of anybody's.

    Raises `Misuse` where something is lacking or at odds.
    """
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None:
        return None
    if isinstance(what, mpi.Cartcomm):
        if shape is None or dtype is None:
            raise Misuse("a communicator knows no array: expected layout_of(cart, shape=..., dtype=...)")
        return _of_grid(what, tuple(shape), dtype)
    if isinstance(what, mpi.Comm):
        raise Misuse(
            f"a communicator of the kind {type(what).__name__} has no grid; expected a Cartcomm: "
            "comm.Create_cart(dims)"
        )
    if not isinstance(what, mpi.Datatype):
        return None
    base, combiner, parameters = what.decode()
    element = _element(base) if dtype is None else np.dtype(dtype)
    if combiner == "DARRAY":
        found = _of_darray(mpi, parameters, element)
        _check_places(what, found, parameters["order"] == mpi.ORDER_FORTRAN)
        if comm is not None and (found.unit, found.units) != (comm.Get_rank(), comm.Get_size()):
            raise Misuse(
                f"the darray type is of process {found.unit} of {found.units}, this one is {comm.Get_rank()} of "
                f"{comm.Get_size()} in the communicator"
            )
        return found
    if combiner == "SUBARRAY":
        if comm is None:
            raise Misuse(
                "a subarray type says what this process has, and nothing of the others: expected "
                "layout_of(datatype, comm=comm), which all of its processes call"
            )
        found = _of_subarrays(mpi, parameters, element, comm)
        _check_places(what, found, parameters["order"] == mpi.ORDER_FORTRAN)
        return found
    raise Misuse(f"a datatype made as {combiner} is not of an array; expected a subarray or a darray")


def _of_grid(cart: Any, shape: tuple[int, ...], dtype: Any) -> Held:
    dims, _, coords = cart.Get_topo()
    if len(dims) > len(shape):
        raise Misuse(
            f"the communicator has {len(dims)} dimensions, the array of shape {shape} has {len(shape)}"
        )
    words = [f"block[{n}]" for n in range(len(dims))] + ["*"] * (len(shape) - len(dims))
    box = []
    for extent, parts, at in zip(shape, dims, coords):
        size = -(-extent // parts)
        box.append((min(at * size, extent), min((at + 1) * size, extent)))
    box += [(0, extent) for extent in shape[len(dims) :]]
    text = f"{','.join(words)}@{'x'.join(map(str, dims))}" if dims else "..."
    unit, units = cart.Get_rank(), cart.Get_size()
    return Held("the communicator's grid", shape, np.dtype(dtype), text, unit, units, [tuple(box)])


def _of_darray(mpi: Any, made: dict[str, Any], dtype: np.dtype[Any]) -> Held:
    words = []
    for axis, (extent, how, size, parts) in enumerate(
        zip(made["gsizes"], made["distribs"], made["dargs"], made["psizes"])
    ):
        usual = size == mpi.DISTRIBUTE_DFLT_DARG
        if how == mpi.DISTRIBUTE_NONE:
            words.append("*")
        elif how == mpi.DISTRIBUTE_CYCLIC:
            words.append(f"cyclic[{axis}]" if usual else f"cyclic({size})[{axis}]")
        elif usual or size == -(-extent // parts):
            words.append(f"block[{axis}]")
        else:
            words.append(f"cut({','.join(str(min(n * size, extent)) for n in range(parts))})[{axis}]")
    order = ";order=F" if made["order"] == mpi.ORDER_FORTRAN else ""
    text = f"{','.join(words)}@{'x'.join(map(str, made['psizes']))}{order}"
    return Held("the darray type", tuple(made["gsizes"]), dtype, text, made["rank"], made["size"])


def _of_subarrays(mpi: Any, made: dict[str, Any], dtype: np.dtype[Any], comm: Any) -> Held:
    shape, box = tuple(made["sizes"]), tuple((lo, lo + n) for lo, n in zip(made["starts"], made["subsizes"]))
    all_of = comm.allgather((shape, made["order"], dtype.str, box))
    for rank, other in enumerate(all_of):
        if other[:3] != all_of[0][:3]:
            raise Misuse(
                f"subarray types of one array: sizes, order and dtype are {all_of[0][:3]} in process 0 and "
                f"{other[:3]} in process {rank}"
            )
    boxes: list[list[Box]] = [[other[3]] if volume(other[3]) else [] for other in all_of]
    order = ";order=F" if made["order"] == mpi.ORDER_FORTRAN else ""
    text = text_of_boxes(shape, boxes) + order
    return Held("the subarray types", shape, dtype, text, comm.Get_rank(), comm.Get_size(), [box])


def _element(base: Any) -> np.dtype[Any]:
    """The dtype of the elements."""
    try:
        found: np.dtype[Any] = np.dtype(str(base.typestr))
        return found
    except (TypeError, ValueError):
        raise Misuse(
            f"the datatype is made of {base.Get_name()!r}; say the dtype of the elements: dtype="
        ) from None


def _check_places(datatype: Any, found: Held, fortran: bool) -> None:
    """Raises `Misuse` unless the type has as many bytes as the layout gives this process, from the first to the
    last of them."""
    found.check()
    size = int(np.dtype(found.dtype).itemsize)
    boxes = boxes_of(found.text, found.shape, found.units, found.unit)
    step, strides = size, [0] * len(found.shape)
    for dim in range(len(found.shape)) if fortran else reversed(range(len(found.shape))):
        strides[dim] = step
        step *= found.shape[dim]
    first = min((sum(lo * s for (lo, _), s in zip(box, strides)) for box in boxes), default=0)
    end = max((sum((hi - 1) * s for (_, hi), s in zip(box, strides)) + size for box in boxes), default=0)
    mine = sum(map(volume, boxes)) * size, first, end
    start, extent = datatype.Get_true_extent()
    theirs = datatype.Get_size(), start, start + extent
    if mine != theirs and (mine[0] or theirs[0]):
        raise Misuse(
            f"the layout {found.text!r} of {found.what} gives unit {found.unit} {mine[0]} bytes, from {first} "
            f"to {end} of the array; the type itself has {theirs[0]}, from {start} to {theirs[2]}; say the "
            "layout: polyduct.Array(shape, dtype, layout)"
        )
