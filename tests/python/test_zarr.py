"""Zarr arrays: what polyduct writes zarr-python reads, and the other way round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from forms import COMMON, SHAPES, read, same, stars, values, write

import polyduct

# Version 3 of the format came with Python 3.11.
zarr = pytest.importorskip("zarr", minversion="3.1")
codecs = pytest.importorskip("zarr.codecs")

# Zarr warns of what no specification has yet: types of raw bytes.
pytestmark = pytest.mark.filterwarnings("ignore:The data type")


@pytest.mark.parametrize("code", [*COMMON, "c8", "c16", "V3"], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arrays_there_and_back(tmp_path: Path, shape: tuple[int, ...], code: str) -> None:
    path = tmp_path / "x.zarr"
    full = values(shape, code) if code != "V3" else values((*shape, 3), "u1").view("V3").reshape(shape)
    write(path, [full], stars(shape), 1)
    assert list(tmp_path.iterdir()) == [path]
    array = zarr.open_array(path, mode="r")
    same(np.asarray(array[...]), full)
    # The next is written by zarr itself, compressed as it does by default.
    path = tmp_path / "y.zarr"
    array = zarr.create_array(
        path, shape=shape, dtype=full.dtype, chunks=tuple(max(1, n // 2) for n in shape)
    )
    array[...] = full
    [found] = read(path, stars(shape), dtype=code)
    same(found, full)


def test_bfloat16_arrays(tmp_path: Path) -> None:
    """zarr-python has no such type; the metadata is what other readers (tensorstore, zarrs) expect."""
    full = values((4, 6), ml_dtypes.bfloat16)
    write(tmp_path / "x.zarr", [full], "block,*", 2)
    document = json.loads((tmp_path / "x.zarr" / "zarr.json").read_text())
    assert document["data_type"] == "bfloat16"
    [found] = read(tmp_path / "x.zarr", "*,*")
    same(found, full)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("layout", ["block,*", "*,block", "block,block@1x3;order=F"])
def test_arrays_of_steps_by_several_units(tmp_path: Path, steps: int, layout: str) -> None:
    path = tmp_path / "x.zarr"
    all_steps = [values((6, 10), "f4", k) for k in range(max(steps, 1))]
    if steps:
        write(path, all_steps, layout, 3)
    else:
        polyduct.open(path, "w", shape=(6, 10), dtype="f4", layout="*,*").close()
    found = zarr.open_array(path, mode="r")
    assert found.shape == ((6, 10) if steps == 1 else (steps, 6, 10))
    np.testing.assert_array_equal(found[...], all_steps[0] if steps == 1 else np.stack(all_steps)[:steps])
    parts = read(path, "*,block;halo=0,1", 1, 3, shape=(6, 10))
    assert len(parts) == steps
    for part, full in zip(parts, all_steps):
        same(part, np.ascontiguousarray(full[:, 3:9]))


def test_a_large_array_of_several_chunks(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    full = np.arange(3 * 5 * (1 << 21), dtype="f4").reshape(3, 5, 1 << 21)
    write(path, [full, full + 1], "*,*,block", 2)
    array = zarr.open_array(path, mode="r")
    assert array.chunks == (1, 1, 3, 1 << 21)
    assert array.info_complete()._count_chunks_initialized == 12
    np.testing.assert_array_equal(array[0], full)
    np.testing.assert_array_equal(array[1, 2, 4], full[2, 4] + 1)
    for part, add in zip(read(path, "*,cyclic,*", 1, 2), (0, 1), strict=True):
        np.testing.assert_array_equal(part, full[:, 1::2] + add)


# Shards in a shard, and frames of Blosc in them.
inner = codecs.ShardingCodec(chunk_shape=(5, 2), codecs=[codecs.BytesCodec(), codecs.BloscCodec()])


@pytest.mark.parametrize(
    "options",
    [
        {"compressors": None},
        {"compressors": codecs.ZstdCodec(level=3, checksum=True)},
        {"compressors": codecs.GzipCodec(level=1)},
        {"compressors": [codecs.ZstdCodec(), codecs.Crc32cCodec()]},
        {"shards": (20, 16)},
        {"shards": (20, 16), "compressors": None},
        {"serializer": codecs.ShardingCodec(chunk_shape=(5, 8), codecs=[inner]), "compressors": None},
        {"compressors": codecs.BloscCodec()},
        {"compressors": codecs.BloscCodec(cname="lz4", clevel=0)},
        {"compressors": [codecs.BloscCodec(cname="blosclz", typesize=3), codecs.Crc32cCodec()]},
        {"shards": (20, 16), "compressors": codecs.BloscCodec(cname="zlib", shuffle="bitshuffle")},
        {"filters": [codecs.TransposeCodec(order=(1, 0))]},
        {"filters": [codecs.TransposeCodec(order=(1, 0))], "compressors": None},
        {"serializer": codecs.BytesCodec(endian="big"), "compressors": None},
        {"chunk_key_encoding": {"name": "v2", "separator": "/"}},
        {"chunk_key_encoding": {"name": "default", "separator": "."}},
    ],
    ids=str,
)
def test_what_zarr_wrote(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "x.zarr"
    full = values((33, 29), "f4")
    array = zarr.create_array(path, shape=full.shape, dtype="f4", chunks=(10, 8), fill_value=7, **options)
    # The rest has the fill value, and no chunks.
    array[:20, :17] = full[:20, :17]
    full[20:] = full[:, 17:] = 7
    for unit in range(3):
        [part] = read(path, "cyclic(2),*", unit, 3)
        same(part, np.concatenate([full[k : k + 2] for k in range(2 * unit, 33, 6)]))
    [whole] = read(path, "*,*;order=F")
    same(np.ascontiguousarray(whole), full)
    # The first dimension counts steps, several of them in a chunk.
    rows = read(path, "block", 1, 2)
    assert len(rows) == 33
    np.testing.assert_array_equal(rows, full[:, 15:])


@pytest.mark.parametrize(
    ("code", "typesize"),
    [("u1", 1), ("i2", 2), ("u1", 3), ("f4", 4), ("u1", 5), ("u1", 6), ("u1", 7), ("f8", 8), ("f4", 17)],
)
@pytest.mark.parametrize("shuffle", ["noshuffle", "shuffle", "bitshuffle"])
@pytest.mark.parametrize("cname", ["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
def test_what_blosc_compressed(tmp_path: Path, cname: str, shuffle: str, code: str, typesize: int) -> None:
    """Chunks of several blocks and a short one: one repeats, one does not, and one does half of the way."""
    dtype = np.dtype(code)
    chunk = 1_200_007 // dtype.itemsize
    size = chunk * dtype.itemsize
    repeats = (np.arange(size // 8 + 1, dtype="u8") // 9).tobytes()[:size]
    noise = np.random.default_rng(1).bytes(size)
    full = np.frombuffer(repeats + noise + repeats[: size // 2] + noise[size // 2 :], dtype)
    compressor = codecs.BloscCodec(cname=cname, shuffle=shuffle, typesize=typesize)
    for name, options in [("x.zarr", {}), ("y.zarr", {"shards": (2 * chunk,)})]:
        array = zarr.create_array(
            tmp_path / name, shape=full.shape, dtype=dtype, chunks=(chunk,), compressors=compressor, **options
        )
        array[...] = full
        [found] = read(tmp_path / name, "*", dtype=code)
        assert found.tobytes() == full.tobytes()
    first = (tmp_path / "x.zarr" / "c" / "0").read_bytes()
    assert first[3] == typesize and len(first) < size


@pytest.mark.parametrize("codec", [codecs.ZstdCodec(checksum=True), codecs.GzipCodec()], ids=str)
def test_a_damaged_chunk_is_refused(tmp_path: Path, codec: Any) -> None:
    path = tmp_path / "x.zarr"
    # Bytes that cannot be made fewer stand in the chunk as they are: only a checksum tells that one is
    # another.
    full = np.random.default_rng(1).integers(0, 256, 4000, dtype="u1")
    zarr.create_array(path, shape=full.shape, dtype="u1", chunks=full.shape, compressors=codec)[...] = full
    [chunk] = [file for file in path.rglob("*") if file.is_file() and file.name != "zarr.json"]
    encoded = bytearray(chunk.read_bytes())
    encoded[2000] ^= 4
    chunk.write_bytes(encoded)
    with pytest.raises(polyduct.FileError, match="chunk c/0"):
        read(path, "*")


def test_an_array_in_a_group(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "run.zarr")
    array = group.create_array("fields/p", shape=(4, 4), dtype="i4", chunks=(2, 2))
    array[...] = np.arange(16).reshape(4, 4)
    [found] = read(tmp_path / "run.zarr" / "fields" / "p", "*,*")
    np.testing.assert_array_equal(found, array[...])
    with pytest.raises(polyduct.FileError, match="it is a group"):
        read(tmp_path / "run.zarr", "*,*")


def test_what_is_not_supported_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    zarr.create_array(path, shape=(4,), dtype="f4", chunks=(4,), compressors=codecs.GzipCodec())[...] = 1
    text = (path / "zarr.json").read_text()
    (path / "zarr.json").write_text(text.replace('"gzip"', '"numcodecs.bz2"'))
    with pytest.raises(polyduct.FileError, match='codec "numcodecs.bz2" is not supported') as e:
        read(path, "*")
    assert e.value.reason == "bad_header"


def test_an_array_takes_the_place_of_another_or_none(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    zarr.create_array(path, shape=(7, 7), dtype="f8", chunks=(2, 2))[...] = 3
    with pytest.raises(ZeroDivisionError):
        with polyduct.open(path, "w", shape=4, dtype="f4", layout="*") as out:
            out.write([1, 2, 3, 4])
            raise ZeroDivisionError
    assert zarr.open_array(path, mode="r").shape == (7, 7)
    assert list(tmp_path.iterdir()) == [path]
    write(path, [values((4,), "f4")], "block", 2)
    assert zarr.open_array(path, mode="r").shape == (4,)
    assert list(tmp_path.iterdir()) == [path]
    # Chunks are where those of the old one were.
    assert sorted(p.relative_to(path).as_posix() for p in path.rglob("*")) == ["c", "c/0", "zarr.json"]


xarray = pytest.importorskip("xarray")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.filterwarnings("ignore:.*onsolidated")
def test_variables_in_what_xarray_wrote(tmp_path: Path, version: int) -> None:
    """Values that are replaced are read anew, by way of consolidated metadata and without, and new variables
    are there."""
    path = tmp_path / "c.zarr"
    temp = values((4, 6), "f4") + np.float32(0.5)
    old = xarray.Dataset(
        {"temp": (("y", "x"), temp, {"units": "K"}), "n": (("t",), np.arange(3, dtype="i2"))},
        coords={"x": np.arange(6.0), "t": [1, 2, 3]},
    )
    old.to_zarr(path, zarr_format=version, consolidated=True, encoding={"temp": {"chunks": (2, 3)}})
    seven = np.full((4, 6), 7, "f4")
    seven[1, 2] = 0
    write(path / "temp", [seven], "*,block", 2)
    write(path / "new", [seven + 1], "*,*", 1)
    write(path / "y", [np.arange(4, dtype="f8")], "*", 1)
    write(path / "odd", [values((5, 6), "i4")], "*,*", 1)
    for consolidated in (True, False):
        found = xarray.open_zarr(path, consolidated=consolidated).load()
        np.testing.assert_array_equal(found["temp"], seven)
        np.testing.assert_array_equal(found["new"], seven + 1)
        np.testing.assert_array_equal(found["odd"], values((5, 6), "i4"))
        assert found["temp"].dims == found["new"].dims == ("y", "x")
        assert found["temp"].attrs == {"units": "K"}
        assert dict(found["y"].indexes) and found["y"].dims == ("y",)
        assert found["odd"].dims == ("odd_dim_0", "odd_dim_1")
        np.testing.assert_array_equal(found["n"], [0, 1, 2])
    # And what xarray writes afterwards polyduct reads, with all it says.
    (found * 2).to_zarr(path, mode="w", zarr_format=version)
    [again] = read(path / "temp", "*,*")
    same(again, seven * 2)
    # A group that nobody has consolidated stays so.
    old.to_zarr(tmp_path / "d.zarr", zarr_format=version, consolidated=False)
    write(tmp_path / "d.zarr" / "temp", [seven], "*,*", 1)
    np.testing.assert_array_equal(xarray.open_zarr(tmp_path / "d.zarr", consolidated=False)["temp"], seven)


@pytest.mark.filterwarnings("ignore:.*onsolidated")
def test_a_group_in_a_group_that_knows_all_arrays(tmp_path: Path) -> None:
    for version in (2, 3):
        path = tmp_path / f"{version}.zarr"
        old = xarray.Dataset({"temp": (("y", "x"), values((4, 6), "f4"))})
        old.to_zarr(path, group="a/b", zarr_format=version, consolidated=False)
        zarr.consolidate_metadata(path)
        write(path / "a" / "b" / "temp", [values((4, 6), "i8", 9)], "*,*", 1)
        write(path / "a" / "b" / "more", [values((4, 6), "u1")], "*,*", 1)
        group = zarr.open_consolidated(path)
        np.testing.assert_array_equal(group["a/b/temp"][...], values((4, 6), "i8", 9))
        np.testing.assert_array_equal(group["a/b/more"][...], values((4, 6), "u1"))
        assert sorted(group["a/b"].array_keys()) == ["more", "temp"]


numcodecs = pytest.importorskip("numcodecs")


@pytest.mark.parametrize(
    "options",
    [
        {"compressors": None},
        {"compressors": None, "order": "F"},
        {"compressors": numcodecs.Zlib(), "chunk_key_encoding": {"name": "v2", "separator": "/"}},
        {"compressors": numcodecs.GZip()},
        {"compressors": numcodecs.Zstd()},
        {"compressors": numcodecs.LZ4()},
        {"compressors": numcodecs.Blosc(), "order": "F"},
    ],
    ids=str,
)
@pytest.mark.parametrize("code", ["<f4", ">f4", ">i2", "?", "<c16", "S3"])
def test_arrays_of_version_2(tmp_path: Path, options: dict[str, Any], code: str) -> None:
    path = tmp_path / "x.zarr"
    full = values((33, 29), "i2").astype(code)
    array = zarr.create_array(path, shape=full.shape, dtype=code, chunks=(10, 8), zarr_format=2, **options)
    array[...] = full
    for unit in range(3):
        [part] = read(path, "cyclic(2),*", unit, 3)
        expected = np.concatenate([full[k : k + 2] for k in range(2 * unit, 33, 6)])
        assert part.tobytes() == expected.astype(expected.dtype.newbyteorder("<")).tobytes()
    rows = read(path, "block", 1, 2)
    assert (
        len(rows) == 33 and rows[5].tobytes() == full[5, 15:].astype(full.dtype.newbyteorder("<")).tobytes()
    )


@pytest.mark.parametrize("code", [*COMMON, "c8", "c16"], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arrays_of_version_2_there_and_back(tmp_path: Path, shape: tuple[int, ...], code: str) -> None:
    path = tmp_path / "x.zarr"
    full = values(shape, code)
    chunks = tuple(max(1, n // 2) for n in shape)
    zarr.create_array(path, shape=shape, dtype=full.dtype, chunks=chunks, zarr_format=2, attributes={"a": 1})
    write(path, [full], stars(shape), 1)
    array = zarr.open_array(path, mode="r")
    assert array.metadata.zarr_format == 2 and dict(array.attrs) == {"a": 1}
    same(np.asarray(array[...]), full)
    [found] = read(path, stars(shape), dtype=code)
    same(found, full)


def test_what_no_reader_of_version_2_here_knows(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    zarr.create_array(
        path, shape=(4,), dtype="f4", chunks=(2,), zarr_format=2, filters=[numcodecs.Delta("f4")]
    )
    with pytest.raises(polyduct.FileError, match='codec "delta" is not supported'):
        read(path, "*")
    zarr.create_group(tmp_path / "g.zarr", zarr_format=2)
    with pytest.raises(polyduct.FileError, match="it is a group; expected an array"):
        read(tmp_path / "g.zarr", "*")


@pytest.mark.parametrize("compress", ["zstd", "gzip", "gzip:1", "blosc", "none"])
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("units", [1, 3])
def test_compressed_chunks(tmp_path: Path, compress: str, version: int, units: int) -> None:
    zarr.create_group(tmp_path / "g.zarr", zarr_format=version)
    path = tmp_path / "g.zarr" / "x"
    for code in ["f4", "i2", "?", "c16"]:
        for layout in ["block,*", "*,balanced", "block,block"]:
            steps = [values((50, 70), code, k) for k in range(3)]
            write(f"{path.parent}/x", steps, layout, units, compress=compress, chunks=(16, 32))
            found = zarr.open_array(path, mode="r")
            assert (found.metadata.zarr_format, found.chunks) == (version, (1, 16, 32))
            assert bool(found.compressors) == (compress != "none")
            same(np.asarray(found[...]), np.stack(steps))
            for back, step in zip(read(f"{path.parent}/x", "*,block"), steps, strict=True):
                same(back, step)


def test_short_steps_share_compressed_chunks(tmp_path: Path) -> None:
    steps = [values((5,), "f8", k) for k in range(10)]
    for chunks, expected in [((4, 5), (4, 5)), (None, (10, 5)), (2, (1, 2))]:
        write(tmp_path / "x.zarr", steps, "block", 2, compress="zstd", chunks=chunks)
        found = zarr.open_array(tmp_path / "x.zarr", mode="r")
        assert found.chunks == expected
        same(np.asarray(found[...]), np.stack(steps))


def test_what_has_no_chunks_refuses_them(tmp_path: Path) -> None:
    for options, name in [({"compress": "zstd"}, "compress"), ({"chunks": (2,)}, "chunks")]:
        for url in [tmp_path / "x.npy", "pipe:x"]:
            with pytest.raises(polyduct.errors.BadOption, match=name):
                polyduct.open(url, "w", shape=3, dtype="f4", timeout=1, **options)
    for options in [{"compress": "zstd:5"}, {"compress": 3}, {"chunks": (2, 0)}, {"chunks": (1, 2, 3, 4)}]:
        with pytest.raises(polyduct.errors.Error):
            polyduct.open(tmp_path / "x.zarr", "w", shape=(3, 4), dtype="f4", **options)
    with pytest.raises(polyduct.errors.BadOption):
        polyduct.open(tmp_path / "x.zarr", compress="zstd")
