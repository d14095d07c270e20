"""Steps between units in threads of one process, compared with the naive oracle."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import oracle
import pytest
from conftest import together

import polyduct

SHAPE = (13, 10)
FULL = np.arange(130, dtype="<i4").reshape(SHAPE)
SIDES = [
    (["block", "*"], [2]),
    (["*", "block"], [3]),
    (["block", "block"], [2, 2]),
    (["cyclic", "cyclic(3)"], [2, 2]),
]


def write(url: str, unit: int, units: int, parts: list[np.ndarray], layout: str, **more: object) -> None:
    dtype = more.pop("dtype", parts[0].dtype)
    shape = more.pop("shape", SHAPE)
    with polyduct.open(
        url, "w", shape=shape, dtype=dtype, layout=layout, unit=unit, units=units, program="w", **more
    ) as out:
        for k, part in enumerate(parts):
            if k % 2:
                out.write(part)
            else:
                with out.step() as a:
                    a[...] = part


def read(url: str, unit: int, units: int, layout: str, **more: object) -> list[np.ndarray]:
    with polyduct.open(url, "r", layout=layout, unit=unit, units=units, program="r", **more) as port:
        return [b.copy(order="K") for b in port]


@pytest.mark.parametrize(("src", "dst"), list(itertools.product(SIDES, SIDES)), ids=str)
@pytest.mark.parametrize("orders", [("C", "C"), ("C", "F"), ("F", "C")], ids="->".join)
def test_every_element_arrives(
    pipe: str, src: tuple[list[str], list[int]], dst: tuple[list[str], list[int]], orders: tuple[str, str]
) -> None:
    steps = [FULL, FULL + 1000, -FULL]
    writers, readers = int(np.prod(src[1])), int(np.prod(dst[1]))
    calls = []
    for unit in range(writers):
        parts = [oracle.part(full, *src, unit) for full in steps]
        layout = oracle.text(*src, order=orders[0])
        calls.append(lambda unit=unit, parts=parts, layout=layout: write(pipe, unit, writers, parts, layout))
    for unit in range(readers):
        layout = oracle.text(*dst, order=orders[1])
        calls.append(lambda unit=unit, layout=layout: read(pipe, unit, readers, layout))
    got = together(*calls)[writers:]
    for unit, parts in enumerate(got):
        assert len(parts) == 3
        for part, full in zip(parts, steps):
            np.testing.assert_array_equal(part, oracle.part(full, *dst, unit))
            assert part.flags.f_contiguous if orders[1] == "F" else part.flags.c_contiguous


@pytest.mark.parametrize("halo", [[(0, 0), (1, 2)], [(3, 0), (0, 0)], [(2, 2), (5, 1)]], ids=str)
def test_halo_like_a_clipped_pad(pipe: str, halo: list[tuple[int, int]]) -> None:
    dists, grid = ["block", "balanced"], [2, 3]
    layout = oracle.text(dists, grid, halo)
    got = together(
        lambda: write(pipe, 0, 1, [FULL], "*,*"),
        *(lambda unit=unit: read(pipe, unit, 6, layout) for unit in range(6)),
    )[1:]
    padded = np.pad(FULL, halo, constant_values=-1)
    for unit in range(6):
        [part] = got[unit]
        np.testing.assert_array_equal(part, oracle.part(FULL, dists, grid, unit, halo))
        rows, cols = oracle.held("block", 13, 2, unit // 3), oracle.held("balanced", 10, 3, unit % 3)
        window = padded[rows[0] : rows[-1] + 1 + sum(halo[0]), cols[0] : cols[-1] + 1 + sum(halo[1])]
        inside = window != -1
        np.testing.assert_array_equal(part.ravel(), window[inside])


@pytest.mark.parametrize("order", ["0,1,2", "0,2,1", "1,0,2", "1,2,0", "2,0,1", "2,1,0"])
def test_any_order_of_dimensions(pipe: str, order: str) -> None:
    full = np.arange(3 * 4 * 5, dtype="f8").reshape(3, 4, 5)

    def write_all() -> tuple[int, ...]:
        with polyduct.open(pipe, "w", shape=full.shape, dtype="f8", layout=f"*,*,*;order={order}") as out:
            with out.step() as a:
                a[...] = full
            out.write(full)
            out.write(np.asfortranarray(full))
            out.write(np.repeat(full, 2, axis=1)[:, ::2])
            return a.strides

    strides, got = together(write_all, lambda: read(pipe, 0, 1, f"*,*,*;order={order}"))
    axes = [int(k) for k in order.split(",")]
    expected = np.empty(np.array(full.shape)[axes], "f8").transpose(np.argsort(axes)).strides
    assert strides == expected
    assert len(got) == 4
    for part in got:
        np.testing.assert_array_equal(part, full)
        assert part.strides == expected


def test_iterating_reuses_one_array_and_read_does_not(pipe: str) -> None:
    def reader() -> None:
        with polyduct.open(pipe, layout="*,*") as port:
            first = port.read()
            second = port.read()
            assert first is not None and second is not None and not np.shares_memory(first, second)
            assert port.number == 1
            np.testing.assert_array_equal([first[0, 1], second[0, 1]], [1, 11])
            out = np.zeros(SHAPE, "<i4", order="F")
            assert port.read(out) is out and out[0, 1] == 21
            strided = np.zeros((13, 20), "<i4")
            assert port.read(out=strided[:, ::2]) is not None
            np.testing.assert_array_equal(strided[:, ::2], FULL + 30)
            assert not strided[:, 1::2].any()
            a, b = next(port), next(port)
            assert a is b and a[0, 1] == 51
            assert list(port) == [] and port.read() is None and port.read(out) is None
            assert port.stats().steps == 6 and port.stats().bytes == 6 * FULL.nbytes

    together(lambda: write(pipe, 0, 1, [FULL + 10 * k for k in range(6)], "*,*"), reader)


def test_two_reader_programs(pipe: str) -> None:
    def other() -> list[np.ndarray]:
        with polyduct.open(pipe, layout="*,block", program="other", unit=0, units=1) as port:
            return [b.copy() for b in port]

    _, a, b = together(
        lambda: write(pipe, 0, 1, [FULL, -FULL], "*,*", readers=2), lambda: read(pipe, 0, 1, "block,*"), other
    )
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, [FULL, -FULL])


@pytest.mark.parametrize("policy", ["latest", "drop_oldest", "drop_newest"])
def test_a_lossy_queue_never_blocks_and_never_tears(pipe: str, policy: str) -> None:
    def writer() -> polyduct.Stats:
        out = polyduct.open(pipe, "w", shape=(1000,), dtype="i8", layout="*", policy=policy, depth=2)
        for k in range(20):
            with out.step() as a:
                a[...] = k
        out.close()
        return out.stats()

    def reader() -> list[tuple[int | None, int]]:
        port = polyduct.open(pipe, layout="*")
        got = []
        for b in port:
            assert (b == b[0]).all()
            got.append((port.number, int(b[0])))
        return got

    stats, got = together(writer, reader)
    values = [value for _, value in got]
    assert values == sorted(set(values))
    assert all(number == value for number, value in got)
    assert got or policy != "drop_newest"
    assert stats.steps + stats.dropped == 20


def test_scalars_and_empty_parts(pipe: str) -> None:
    def writer() -> None:
        with polyduct.open(
            pipe, "w", shape=(2, 3), dtype="f4", layout="block,*", unit=0, units=1, program="w"
        ) as out:
            out.write([[1, 2, 3], [4, 5, 6]])

    _, *parts = together(writer, *(lambda unit=unit: read(pipe, unit, 4, "block,*") for unit in range(4)))
    assert [part.shape for [part] in parts] == [(1, 3), (1, 3), (0, 3), (0, 3)]
    np.testing.assert_array_equal(parts[1][0], [[4, 5, 6]])


def test_digits_boxes_and_stripes(pipe: str) -> None:
    full = np.arange(16, dtype="<u2")

    def bytes_reader(unit: int) -> np.ndarray:
        port = polyduct.open(pipe, layout="stripe(4)", unit=unit, units=2, program="r")
        assert port.dtype == np.uint16 and port.local_dtype == np.uint8
        [b] = [b.copy() for b in port]
        return b

    def writer(unit: int, layout: str, part: np.ndarray) -> None:
        with polyduct.open(
            pipe, "w", shape=16, dtype="u2", layout=layout, unit=unit, units=2, program="w"
        ) as out:
            out.write(part)

    digits = "digits(2x8;unit=0)"
    *_, even, odd = together(
        lambda: writer(0, digits, full[:8]),
        lambda: writer(1, digits, full[8:]),
        lambda: bytes_reader(0),
        lambda: bytes_reader(1),
    )
    pairs = full.view("u1").reshape(-1, 2, 4)
    np.testing.assert_array_equal(even, pairs[:, 0].ravel())
    np.testing.assert_array_equal(odd, pairs[:, 1].ravel())


def test_conversion_on_the_way(pipe: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    full = np.linspace(-3, 3, 130, dtype="f4").reshape(SHAPE)
    _, [part] = together(
        lambda: write(pipe, 0, 1, [full], "*,*"), lambda: read(pipe, 0, 1, "*,*", dtype="bf16", convert=True)
    )
    assert part.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(part, full.astype(ml_dtypes.bfloat16))


LARGE = os.environ.get("POLYDUCT_LARGE") == "1"


def test_the_far_end_of_a_large_part(pipe: str) -> None:
    """``POLYDUCT_LARGE=1``: a slot of more than 4 GiB, its end beyond what 32 bits count; takes as much
    memory, and half a minute."""
    size = (5 << 30 if LARGE else 5 << 20) + 3
    at = size // 10 * 9 + 1
    values = (np.arange(4096) % 251).astype("u1")

    def write() -> None:
        with polyduct.open(pipe, "w", shape=size, dtype="u1", layout="*", depth=1) as out:
            for k in range(2):
                with out.step() as a:
                    a[at : at + 4096] = values + k

    def read() -> list[bool]:
        with polyduct.open(pipe, layout=f"boxes({at}:{at + 4096})", timeout=120) as port:
            return [bool((b == values + k).all()) for k, b in enumerate(port)]

    assert together(write, read)[1] == [True, True]


def memory_files() -> tuple[int, int]:
    """Descriptors, and MiB that are mapped, of memory that processes share."""
    mapped = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "memfd:polyduct-slots" in line:
            low, high = (int(at, 16) for at in line.split()[0].split("-"))
            mapped += high - low
    links = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{fd}")
    ]
    return len([link for link in links if "polyduct" in link]), mapped >> 20


def test_closing_frees_the_slots(pipe: str) -> None:
    before, kept, freed = memory_files(), [], []

    def writer() -> None:
        out = polyduct.open(pipe, "w", shape=1 << 22, dtype="f4")
        with out.step() as a:
            a[...] = 1
        assert memory_files() > before
        out.close()
        # The last array that lies there keeps the memory.
        kept.append(float(a[-1]))
        del a
        freed.append(out)

    def reader() -> list[float]:
        with polyduct.open(pipe) as port:
            return [float(b.sum()) for b in port]

    assert together(writer, reader)[1] == [float(1 << 22)]
    assert kept == [1.0] and memory_files() == before
