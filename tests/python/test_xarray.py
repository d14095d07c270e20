"""Stores and their arrays in xarray and Dask: nothing is read before it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import pytest
import xarray as xr

import polyduct
from polyduct import StoredArray


@pytest.fixture
def store(tmp_path: Path) -> polyduct.Store:
    made = polyduct.Store.create(tmp_path / "s", units=2, parity=1)
    made["u"] = np.arange(24.0).reshape(4, 6)
    made["u"].attrs.update(dims=["y", "x"], units="K")
    made["x"] = np.arange(6.0) * 10
    made["x"].attrs["_ARRAY_DIMENSIONS"] = ["x"]
    return made


@contextmanager
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """The shapes that are read from stores within the block."""
    seen: list[tuple[int, ...]] = []
    read = StoredArray._read

    def counted(self: StoredArray, part: Any) -> Any:
        array = read(self, part)
        seen.extend([array.shape] if array.size else [])
        return array

    with monkeypatch.context() as patched:
        patched.setattr(StoredArray, "_read", counted)
        yield seen


def test_a_data_array_reads_what_it_is_asked_for(
    store: polyduct.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = np.arange(24.0).reshape(4, 6)
    with reads(monkeypatch) as seen:
        x = xr.DataArray(store["u"], dims=("y", "x"))
        repr(x)
        assert (x.chunks, x.chunksizes) == (((4,), (6,)), {"y": (4,), "x": (6,)})
        chunked = x.chunk({"x": 3})
        assert seen == [] and isinstance(chunked.data, dask.array.Array)
        np.testing.assert_array_equal(x[1:3, 2].values, full[1:3, 2])
        assert seen == [(2, 1)]
        np.testing.assert_array_equal(chunked.isel(x=slice(3)).values, full[:, :3])
        assert seen[1:] == [(4, 3)]
    assert float(x.mean()) == 11.5 and float((x + 1).sum()) == 300
    np.testing.assert_array_equal(x.isel(x=[0, 3], y=[1, 2]).values, full[1:3][:, [0, 3]])
    np.testing.assert_array_equal(np.concatenate([store["u"], full]), np.concatenate([full, full]))


def test_a_store_is_a_dataset(store: polyduct.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    full = np.arange(24.0).reshape(4, 6)
    with reads(monkeypatch) as seen:
        ds = xr.open_dataset(store.path)
        assert set(ds.variables) == {"u", "x"} and ds["u"].dims == ("y", "x") and "x" in ds.coords
        assert ds["u"].attrs == {"units": "K"}
        assert (4, 6) not in seen
        np.testing.assert_array_equal(ds["u"].sel(x=30).values, full[:, 3])
        assert (4, 6) not in seen
    points = {"x": xr.DataArray([0, 3], dims="p"), "y": xr.DataArray([1, 2], dims="p")}
    np.testing.assert_array_equal(ds["u"].isel(points).values, full[[1, 2], [0, 3]])
    chunked = xr.open_dataset(f"store:{store.path}", engine="polyduct", chunks={}, drop_variables="x")
    assert set(chunked.variables) == {"u"} and chunked["u"].chunks == ((4,), (6,))
    store["u"].attrs["dims"] = ["y"]
    with pytest.raises(polyduct.Misuse, match="u: .* expected 2 names"):
        xr.open_dataset(store.path)


def test_chunks_are_steps_and_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyduct._stores.CHUNK_BYTES", 64)
    store = polyduct.Store.create(tmp_path / "s", units=1)
    for shape, chunks in (
        ((), ()),
        ((0,), ((0,),)),
        ((20,), ((8, 8, 4),)),
        ((5, 3), ((2, 2, 1), (3,))),
        ((2, 3, 9), ((1, 1), (1, 1, 1), (8, 1))),
    ):
        store["a"] = np.zeros(shape)
        assert store["a"].chunks == chunks
        assert dask.array.from_array(store["a"], chunks=store["a"].chunks).sum().compute() == 0
    with polyduct.open(f"store:{store.path}/t", "w", shape=(5, 3), dtype="f8") as out:
        for _ in range(2):
            out.write(np.ones((5, 3)))
    assert store["t"].chunks == ((1, 1), (2, 2, 1), (3,))


def test_pictures_and_tables_for_notebooks(store: polyduct.Store, tmp_path: Path) -> None:
    layout = polyduct.Layout("block,cyclic(2)@2x2", shape=(8, 12), units=4)
    drawn = layout._repr_html_()
    # A box for each unit's blocks, each named; text is escaped.
    assert drawn.count("<rect") == sum(len(layout.boxes(unit)) for unit in range(4))
    assert "<title>unit 3: 4:8, 2:4</title>" in drawn
    for text, shape, units in (
        ("cyclic", (1 << 20,), 2),
        ("block", (0,), 2),
        ("*", (), 1),
        ("block,*,*", (4, 2, 2), 2),
    ):
        assert polyduct.Layout(text, shape=shape, units=units)._repr_html_().startswith("<table")
    store["<b>"] = np.zeros(3)
    listed = store._repr_html_()
    assert "&lt;b&gt;" in listed and "<b>]" not in listed and "(4, 6)" in listed
    assert "units</th>" in store["u"]._repr_html_() and "192 B" in store["u"]._repr_html_()
    np.save(tmp_path / "a.npy", np.zeros((4, 6)))
    with polyduct.open(tmp_path / "a.npy", layout="block,*", unit=1, units=2) as port:
        assert "unit</th>" in port._repr_html_() and 'stroke="#000"' in port._repr_html_()
