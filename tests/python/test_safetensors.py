"""Files of tensors: what polyduct writes safetensors reads, and the other way round."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from forms import COMMON, SHAPES, read, same, stars, values, write

import polyduct


@pytest.mark.parametrize("code", [*COMMON, ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tensors_there_and_back(tmp_path: Path, shape: tuple[int, ...], code: object) -> None:
    path = tmp_path / "m.safetensors"
    full = values(shape, code)
    write(f"{path}#w", [full], stars(shape), 1)
    assert list(tmp_path.iterdir()) == [path]
    loaded = safetensors.numpy.load_file(path)
    assert list(loaded) == ["w"]
    same(loaded["w"], full)
    safetensors.numpy.save_file({"other": full}, path)
    [found] = read(path, stars(shape))
    same(found, full)


def test_one_of_several_tensors(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    tensors = {f"layers.{k}/w": values((8, 6), "f4", k) for k in range(30)}
    safetensors.numpy.save_file(tensors, path, metadata={"format": "np"})
    for unit in range(2):
        [part] = read(f"{path}#layers.7/w", "*,block", unit, 2)
        same(part, np.ascontiguousarray(tensors["layers.7/w"][:, unit * 3 : unit * 3 + 3]))
    for url in (path, f"{path}#layers.99/w"):
        with pytest.raises(polyduct.FileError, match=r"layers\.0/w, layers\.1/w, .* and 10 more") as e:
            read(url, "*,*")
        assert e.value.reason == "no_tensor"


def test_the_others_stay_where_one_tensor_is_written(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    tensors = {
        name: values((5, 3), code, k)
        for k, (name, code) in enumerate([("a", "u1"), ("b", "f8"), ("c", "f2")])
    }
    safetensors.numpy.save_file(tensors, path, metadata={"format": "np"})
    for name, code in [("b", "i4"), ("d", "f4")]:
        tensors[name] = values((4, 5), code)
        write(f"{path}#{name}", [tensors[name]], "*,block", 2)
    loaded = safetensors.numpy.load_file(path)
    assert loaded.keys() == tensors.keys()
    for name, expected in tensors.items():
        same(loaded[name], expected)
    with safetensors.safe_open(path, "np") as file:
        assert file.metadata() == {"format": "np"}


def test_tensors_of_steps_by_several_units(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    steps = [values((6, 10), "f4", k) for k in range(3)]
    write(path, steps, "*,block", 3)
    same(safetensors.numpy.load_file(path)["data"], np.stack(steps))
    for part, full in zip(read(path, "block,*", 1, 2), steps, strict=True):
        same(part, full[3:])


def test_what_a_tensor_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(polyduct.FileError, match="safetensors has no elements of type c64") as e:
        write(tmp_path / "m.safetensors", [values((2,), "c8")], "*", 1)
    assert e.value.reason == "no_form"
    (tmp_path / "m.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0nonsense")
    with pytest.raises(polyduct.FileError, match="byte 8: expected `{`") as e:
        read(tmp_path / "m.safetensors", "*")
    assert e.value.reason == "bad_header"
