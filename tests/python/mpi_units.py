"""Processes of a program of MPI, for `test_layouts_of`: ``mpiexec -n 6 python mpi_units.py ROLE URL``."""

import itertools
import sys
from typing import Any

import numpy as np
import polyduct
from mpi4py import MPI
from polyduct._grids import merged

world = MPI.COMM_WORLD
ORDERS = {"C": MPI.ORDER_C, "F": MPI.ORDER_FORTRAN}
USUAL = MPI.DISTRIBUTE_DFLT_DARG


def whole(shape: Any) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int), dtype="i4").reshape(shape)


def packed(datatype: MPI.Datatype, shape: Any, order: str) -> np.ndarray:
    """The elements that MPI takes by a type out of the whole array, in its order."""
    full = np.asarray(whole(shape), order=order)
    size = datatype.Get_size()
    flat = np.zeros(size // 4, "i4")
    datatype.Commit()
    try:
        datatype.Pack(full.ravel(order="K"), flat, 0, MPI.COMM_SELF) if size else None
    finally:
        datatype.Free()
    return flat


def held_here(held: polyduct.Array, unit: int, units: int) -> np.ndarray:
    """The elements that a layout gives a unit, in the order of its memory."""
    shape = tuple(held.most)
    layout = polyduct.Layout(held.layout or "", shape=shape, units=units, dtype=held.dtype)
    parts = polyduct.redistribute([whole(shape)], polyduct.Layout("...", shape=shape, units=1, dtype="i4"), layout)
    part = parts[unit]
    return part.ravel(order="F" if str(layout).endswith("order=F") else "C")


def darrays() -> None:
    """Every distribution and both orders: the same elements as MPI has, in the same order."""
    tried = 0
    kinds = [
        (MPI.DISTRIBUTE_BLOCK, USUAL),
        (MPI.DISTRIBUTE_BLOCK, 4),
        (MPI.DISTRIBUTE_CYCLIC, USUAL),
        (MPI.DISTRIBUTE_CYCLIC, 2),
    ]
    for shape, order in itertools.product([(7, 8), (12, 9), (3, 5)], ORDERS):
        for psizes in [(3, 2), (2, 3)]:
            for first, second in itertools.product(kinds, kinds):
                if any(k[1] == 4 and 4 * p < n for k, p, n in zip((first, second), psizes, shape)):
                    continue
                distribs, dargs = zip(first, second)
                made = MPI.INT.Create_darray(6, world.rank, shape, distribs, dargs, psizes, ORDERS[order])
                held = polyduct.layout_of(made, comm=world)
                assert (held.shape, held.dtype) == (shape, "i4")
                mine = held_here(held, world.rank, 6)
                np.testing.assert_array_equal(mine, packed(made, shape, order), f"{held} {order}")
                tried += 1
    made = MPI.DOUBLE.Create_darray(
        6, world.rank, (9, 4), [MPI.DISTRIBUTE_CYCLIC, MPI.DISTRIBUTE_NONE], [USUAL, USUAL], (6, 1)
    )
    assert polyduct.layout_of(made) == polyduct.Array((9, 4), "f8", "cyclic[0],*@6x1")
    if world.rank == 0:
        print("darrays", tried)


def subarrays() -> None:
    """Blocks of a grid, and boxes that are none, as MPI has them."""
    said = []
    for order in ORDERS:
        for name, shape, boxes in [
            ("rows", (12, 5), [((2 * n, 2 * n + 2), (0, 5)) for n in range(6)]),
            ("grid", (7, 5), [((a, b), (c, d)) for a, b in [(0, 4), (4, 6), (6, 7)] for c, d in [(0, 3), (3, 5)]]),
            ("boxes", (3, 4), [((0, 3), (n, n + 1)) if n < 3 else ((n - 3, n - 2), (3, 4)) for n in range(6)]),
        ]:
            box = boxes[world.rank]
            starts, sizes = [lo for lo, _ in box], [hi - lo for lo, hi in box]
            made = MPI.INT.Create_subarray(shape, sizes, starts, ORDERS[order])
            held = polyduct.layout_of(made, comm=world)
            np.testing.assert_array_equal(held_here(held, world.rank, 6), packed(made, shape, order))
            said.append(f"{name} {order}: {held.layout}")
    if world.rank == 0:
        print("\n".join(said))


def grids() -> None:
    """A block in each process of a grid, where MPI says that the process is."""
    for dims, shape in [((3, 2), (7, 5)), ((6,), (13, 2)), ((3, 2), (2, 9, 4)), ((1, 6), (4, 4)), ((2, 3, 1), (5, 5, 5))]:
        cart = world.Create_cart(dims, reorder=True)
        held = polyduct.layout_of(cart, shape=shape, dtype="f4")
        assert (held.shape, held.dtype) == (shape, "f4")
        layout = polyduct.Layout(held.layout or "", shape=shape, units=6)
        everywhere = cart.allgather((cart.coords, merged(layout.boxes(cart.rank))))
        seen = np.zeros(shape, int)
        for coords, boxes in everywhere:
            for box in boxes:
                seen[tuple(slice(*side) for side in box)] += 1
                for at, parts, extent, (lo, _) in zip(coords, dims, shape, box):
                    assert lo == at * -(-extent // parts)
        assert (seen == 1).all()


def misuse() -> None:
    cart = world.Create_cart((3, 2))
    rows = MPI.INT.Create_subarray((6, 2), (1, 2), (world.rank, 0))
    other = MPI.INT.Create_subarray((6, 2 + world.rank % 2), (1, 2), (world.rank, 0))
    for why, call in [
        ("expected layout_of(cart, shape=..., dtype=...)", lambda: polyduct.layout_of(cart)),
        ("has 2 dimensions, the array of shape (4,) has 1", lambda: polyduct.layout_of(cart, shape=4, dtype="f4")),
        ("expected a Cartcomm", lambda: polyduct.layout_of(world, shape=4, dtype="f4")),
        ("expected layout_of(datatype, comm=comm)", lambda: polyduct.layout_of(rows)),
        ("are ((6, 2), ", lambda: polyduct.layout_of(other, comm=world)),
        ("((6, 3), ", lambda: polyduct.layout_of(other, comm=world)),
        ("made as VECTOR", lambda: polyduct.layout_of(MPI.INT.Create_vector(2, 3, 4))),
        ("gives unit 0 96 bytes", lambda: polyduct.layout_of(
            MPI.INT.Create_darray(1, 0, (12,), [MPI.DISTRIBUTE_BLOCK], [USUAL], [1]), dtype="f8")),
        ("leave out shape, dtype and comm", lambda: polyduct.layout_of(np.zeros(3), shape=3)),
    ]:  # fmt: skip
        try:
            call()
            raise AssertionError(f"{why}: no error")
        except polyduct.Misuse as e:
            assert why in str(e), e
    # Ranks that are not those that mpiexec gave.
    turned = world.Create_group(world.group.Incl([1, 2, 3, 4, 5, 0])).Create_cart((6,))
    held = {"u": polyduct.layout_of(turned, shape=(6, 2), dtype="i4")}
    try:
        polyduct.open("pipe:nobody", "w", arrays=held, unit=world.rank, units=6)
        raise AssertionError("opened")
    except polyduct.Misuse as e:
        assert f"this process is unit {turned.rank} of 6 for 'u', and unit {world.rank} of 6" in str(e), e


def write(url: str) -> None:
    """An array of blocks, and one of whatever a darray deals."""
    cart = world.Create_cart((3, 2), periods=(True, False))
    dealt = MPI.INT.Create_darray(
        6, world.rank, (9, 7), [MPI.DISTRIBUTE_CYCLIC, MPI.DISTRIBUTE_BLOCK], [2, USUAL], (3, 2), MPI.ORDER_FORTRAN
    )
    u = polyduct.layout_of(cart, shape=(7, 5), dtype="i4")
    with polyduct.open(url, "w", arrays={"u": u, "dealt": polyduct.layout_of(dealt)}, timeout=30) as out:
        assert (out.unit, out.units) == (world.rank, world.size)
        [box] = out.arrays["u"].layout.boxes(out.unit)
        part = out.arrays["dealt"].local_shape
        out.write({
            "u": whole((7, 5))[tuple(slice(*side) for side in box)],
            "dealt": packed(dealt, (9, 7), "F").reshape(part, order="F"),
        })  # fmt: skip


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
