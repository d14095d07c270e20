"""Arrays and layouts of other libraries, by what their objects answer: nothing is imported that the program
has not imported itself."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyduct import _jax, _mpi
from polyduct._dtypes import to_elem
from polyduct._grids import EVERYTHING
from polyduct._held import SAY, Held
from polyduct.errors import Misuse, WrongType

if TYPE_CHECKING:
    from polyduct import _arrays


def torch_of(what: object) -> Any:
    """The module torch, if this is a tensor of it."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(what, torch.Tensor) else None


def is_sharded(what: object) -> bool:
    """Whether this is a tensor of which this process has a part: a DTensor of torch."""
    return hasattr(what, "device_mesh") and hasattr(what, "placements") and hasattr(what, "to_local")


def as_numpy(what: Any) -> _arrays.Array | None:
    """The array of NumPy in the same memory, of what this process has of a tensor or of an array of JAX; None
    for anything else.

    Raises `WrongType` for a tensor that is not in this processor's memory.
    """
    if _jax.is_array(what):
        return _jax.part(what) if _jax.is_sharded(what) else np.asarray(what)
    torch = torch_of(what)
    if torch is None:
        return None
    # With gradients, `to_local` would be a step of them, which takes longer than all else here.
    with torch.no_grad():
        local = what.to_local() if is_sharded(what) else what
        local = local.detach() if local.requires_grad else local
    if local.device.type != "cpu":
        raise WrongType(f"the tensor is on {local.device}; expected one in main memory: tensor.cpu()")
    if local.dtype == torch.bfloat16:
        return local.view(torch.int16).numpy().view(to_elem("bf16")[1])  # type: ignore[no-any-return]
    return local.numpy()  # type: ignore[no-any-return]


def as_torch(array: _arrays.Array) -> Any:
    """The tensor in the same memory."""
    torch: Any = importlib.import_module("torch")
    if array.dtype == to_elem("bf16")[1]:
        return torch.from_numpy(array.view("i2")).view(torch.bfloat16)
    return torch.from_numpy(array)


def is_described(what: object) -> bool:
    """Whether its shape and dtype say what it is like, wherever its elements are: a tensor or an array of JAX."""
    return torch_of(what) is not None or _jax.is_array(what)


def dtype_of(what: Any) -> str:
    """The name of the dtype of a tensor or of an array of JAX as polyduct takes it."""
    return str(what.dtype).removeprefix("torch.")


def text_of(what: Any, whole: Any) -> str:
    """The layout of a tensor's shards, as text: the mesh of all units is the grid, in row-major order, of which the
    tensor's own is a part.

    Each dimension is cut as ``torch.chunk`` does, once for each axis of the mesh that shards it, in the order in
    which the placements say that: strided ones behind those to their right.
    """
    mesh, sides = [int(n) for n in what.device_mesh.mesh.shape], sides_of(what.device_mesh, whole)
    axes: dict[int, list[int]] = {}
    strided: dict[int, list[int]] = {}
    for axis, placement in enumerate(what.placements):
        kind = type(placement).__name__
        if kind == "Replicate":
            continue
        if kind not in ("Shard", "_StridedShard"):
            raise Misuse(f"a tensor that is placed as {placement} has no layout; expected shards and replicas")
        dim = int(placement.dim) % max(len(what.shape), 1)
        (strided if kind == "_StridedShard" else axes).setdefault(dim, []).append(axis)
        if kind == "_StridedShard":
            right = [n for n, other in zip(mesh[axis + 1 :], what.placements[axis + 1 :]) if _shards(other, dim, what)]
            if int(placement.split_factor) != math.prod(right):
                raise Misuse(
                    f"a tensor that is placed as {what.placements} has no layout here: its strided shards have another "
                    f"split_factor than {math.prod(right)}, the shards of the axes to their right; {SAY}"
                )
    dims = []
    for dim, extent in enumerate(what.shape):
        order = axes.get(dim, []) + strided.get(dim, [])[::-1]
        if not order:
            dims.append("*")
            continue
        starts = [0, int(extent)]
        for axis in order:
            starts = [at for lo, hi in zip(starts, starts[1:]) for at in _chunks(lo, hi, mesh[axis])] + [starts[-1]]
        named = ",".join(str(side) for axis in order for side in sides[axis])
        even = len(order) == 1 or starts == list(range(0, int(extent) + 1, starts[1] - starts[0] or 1))
        dims.append(f"block[{named}]" if even else f"cut({','.join(map(str, starts[:-1]))})[{named}]")
    if all(dim == "*" for dim in dims):
        return EVERYTHING
    return f"{','.join(dims)}@{'x'.join(str(int(n)) for n in whole.mesh.shape)}"


def _shards(placement: Any, dim: int, what: Any) -> bool:
    return hasattr(placement, "dim") and int(placement.dim) % max(len(what.shape), 1) == dim


def mesh_of(leaves: Iterable[object]) -> Any:
    """The largest mesh of tensors of torch, whose processes are the units; None where none is sharded."""
    meshes = [leaf.device_mesh for leaf in leaves if is_sharded(leaf)]  # type: ignore[attr-defined]
    return max(meshes, key=lambda mesh: int(mesh.mesh.numel()), default=None)


def sides_of(mesh: Any, whole: Any) -> list[tuple[int, ...]]:
    """Which sides of the whole mesh each side of a part of it is: several where they were flattened into one.

    Raises `Misuse` for a mesh that is no part of it in this way.
    """
    ranks, all_ranks = mesh.mesh.numpy(), whole.mesh.numpy()
    if ranks.shape == all_ranks.shape and bool((ranks == all_ranks).all()):
        return [(n,) for n in range(ranks.ndim)]
    place = mesh.get_coordinate()
    if place is None:
        raise Misuse("this process is not in the mesh of the tensor")
    sides = []
    for axis, size in enumerate(ranks.shape):
        line = ranks[tuple(slice(None) if n == axis else at for n, at in enumerate(place))]
        found = [np.argwhere(all_ranks == rank) for rank in line]
        if any(len(at) != 1 for at in found):
            raise Misuse(f"the mesh {mesh} is no part of {whole}, which other tensors have; {SAY}")
        at = np.concatenate(found)
        varying = tuple(n for n in range(all_ranks.ndim) if len(set(at[:, n])) > 1)
        # In the order of the whole mesh, all of these sides.
        expected = np.indices([all_ranks.shape[n] for n in varying]).reshape(len(varying), -1).T
        if size > 1 and not np.array_equal(at[:, varying], expected):
            raise Misuse(f"the mesh {mesh} is no part of {whole}, which other tensors have; {SAY}")
        sides.append(varying)
    return sides


def _chunks(lo: int, hi: int, pieces: int) -> list[int]:
    """Where the pieces of ``torch.chunk`` begin, those that are empty at the end."""
    size = -(-(hi - lo) // pieces)
    return [min(lo + n * size, hi) for n in range(pieces)]


def unit_of(mesh: Any) -> tuple[int, int]:
    """Which unit of how many this process is, by its place in a mesh."""
    place, unit = mesh.get_coordinate(), 0
    if place is None:
        raise Misuse("this process is not in the mesh of the tensor")
    for n, size in zip(place, mesh.mesh.shape):
        unit = unit * int(size) + int(n)
    return unit, int(np.prod(mesh.mesh.shape))


def boxes_of(what: Any) -> list[tuple[tuple[int, int], ...]] | None:
    """The boxes of this process's part as torch's distributed checkpoints have them, where the tensor says."""
    listed = getattr(what, "__create_chunk_list__", None)
    if listed is None:
        return None
    chunks = [(list(chunk.offsets), list(chunk.sizes)) for chunk in listed()]
    boxes = [tuple((int(lo), int(lo + n)) for lo, n in zip(at, sizes)) for at, sizes in chunks]
    return [box for box in boxes if all(lo < hi for lo, hi in box)]


def is_held(what: Any) -> bool:
    """Whether an array is one of which this process has a part."""
    return is_sharded(what) or _jax.is_sharded(what) or _mpi.is_held(what)


def held(
    what: Any,
    *,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    comm: Any = None,
    mesh: Any = None,
) -> Held | None:
    """How an array is held of which this process has a part; None for others. Of a tensor of torch the mesh of all
    units can be said, of which its own is a part.

    Raises `Misuse` for what has no layout.
    """
    if is_sharded(what):
        whole = what.device_mesh if mesh is None else mesh
        return Held(
            "the tensor's mesh and placements",
            tuple(int(n) for n in what.shape),
            dtype_of(what),
            text_of(what, whole),
            *unit_of(whole),
            boxes_of(what),
        )
    if _jax.is_sharded(what):
        return _jax.held(what)
    return _mpi.held(what, shape, dtype, comm)
