"""Processes of a program of JAX, for `test_layouts_of`: ``python jax_units.py ROLE RANK UNITS PORT URL``."""

import os
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polyduct
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from polyduct import _foreign

DEVICES = 2
"""Devices of each process."""

DTYPES = {"one device, rows": "bfloat16"}


def shardings() -> dict[str, tuple[tuple[int, ...], NamedSharding]]:
    """Arrays that are held in all the ways that differ here, by a name."""
    devices = sorted(jax.devices(), key=lambda d: (d.process_index, d.id))
    units = jax.process_count()
    flat = np.array(devices)
    one = flat.reshape(units, DEVICES)[:, :1].reshape(units)  # a device of each process
    found = {}
    for name, mesh, spec, shape in [
        ("one device, rows", Mesh(one, "x"), P("x"), (8, 6)),
        ("one device, columns", Mesh(one.reshape(2, -1), ("x", "y")), P(None, ("y", "x")), (3, 8)),
        ("one device, replicas", Mesh(one.reshape(2, -1), ("x", "y")), P("y"), (8,)),
        ("one device, backwards", Mesh(one[::-1].copy(), "x"), P("x"), (8, 6)),
        ("all devices, rows", Mesh(flat, "x"), P("x"), (16, 3)),
        ("all devices, both", Mesh(flat.reshape(units, DEVICES), ("x", "y")), P("x", "y"), (4, 6)),
        (
            "all devices, dealt",
            Mesh(flat.reshape(units, DEVICES).T.copy(), ("x", "y")),
            P(("x", "y")),
            (16, 2),
        ),
        ("some processes", Mesh(one[:2], "x"), P("x"), (4,)),
        ("replicas", Mesh(flat, "x"), P(), (5, 3)),
    ]:
        found[name] = shape, NamedSharding(mesh, spec)
    return found


def whole(shape: tuple[int, ...], dtype: str = "int32") -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(jnp.dtype(dtype))


def made(shape: tuple[int, ...], sharding: NamedSharding, dtype: str = "int32") -> jax.Array:
    return jax.make_array_from_callback(
        shape, sharding, lambda index: whole(shape, dtype)[index], dtype=dtype
    )


def layouts() -> None:
    """Layouts have what JAX has, on every process; and JAX gathers what the boxes say."""
    said = []
    for name, (shape, sharding) in shardings().items():
        x = made(shape, sharding)
        held = polyduct.layout_of(x)
        assert (held.shape, held.dtype) == (shape, np.dtype("int32")), name
        assert polyduct.layout_of(jax.ShapeDtypeStruct(shape, "int32", sharding=sharding)) == held
        layout = polyduct.Layout(held.layout or "", shape=shape, units=jax.process_count())
        seen, expected = np.zeros(shape, bool), np.zeros(shape, bool)
        for box in layout.boxes(jax.process_index()):
            seen[tuple(slice(*side) for side in box)] = True
        for shard in x.addressable_shards:
            expected[shard.index] = True
        np.testing.assert_array_equal(seen, expected, name)
        if name != "some processes":
            np.testing.assert_array_equal(multihost_utils.process_allgather(x, tiled=True), whole(shape))
        said.append(f"{name}: {held.layout}")
    local = jnp.arange(3, dtype=jnp.bfloat16)
    assert polyduct.layout_of(local) == polyduct.Array((3,), "bfloat16", "...")
    if jax.process_index() == 0:
        print("\n".join(said), flush=True)


def write(url: str) -> None:
    arrays = {name: made(*how, DTYPES.get(name, "int32")) for name, how in shardings().items()}
    rows = arrays["one device, rows"]
    part = _foreign.as_numpy(rows)
    assert part is not None and part.ctypes.data == rows.addressable_shards[0].data.unsafe_buffer_pointer()
    for told in ({"unit": 0, "units": 1}, {"unit": 3 - jax.process_index(), "units": 4}):
        try:
            polyduct.open(url, "w", arrays=arrays, timeout=30, **told)
            raise AssertionError("opened as another unit")
        except polyduct.Misuse as e:
            mine = (
                f"this process is unit {jax.process_index()} of {jax.process_count()} for 'one device, rows'"
            )
            assert mine in str(e) and "by unit= and units=" in str(e), e
    with polyduct.open(url, "w", arrays=arrays, timeout=30) as out:
        assert (out.unit, out.units) == (jax.process_index(), jax.process_count())
        out.write(arrays)


def read(url: str) -> None:
    like: dict[str, Any] = {}
    for name, (shape, how) in shardings().items():
        like[name] = jax.ShapeDtypeStruct(shape, DTYPES.get(name, "int32"), sharding=how)
    with polyduct.open(url, layouts=like, timeout=30) as port:
        step = port.read()
        assert step is not None
        for name, (shape, how) in shardings().items():
            if name in ("all devices, dealt", "some processes"):  # several boxes, or none, on a process
                continue
            x = jax.make_array_from_process_local_data(how, step[name], shape)
            for shard in x.addressable_shards:
                np.testing.assert_array_equal(
                    np.asarray(shard.data), whole(shape, x.dtype.name)[shard.index], name
                )


if __name__ == "__main__":
    role, rank, units, port, *arguments = sys.argv[1:]
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.distributed.initialize(f"127.0.0.1:{port}", int(units), int(rank))
    globals()[role](*arguments)
    jax.distributed.shutdown()
    sys.stdout.flush()
    os._exit(0)
