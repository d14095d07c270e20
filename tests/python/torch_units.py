"""Processes of a trainer and of a server, for `test_torch`: ``python torch_units.py ROLE ARGUMENTS``, one for each
unit, with torchrun's variables in the environment."""

import os
import sys
from typing import Any

import numpy as np
import polyduct
import polyduct.torch
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

HIDDEN = 22  # no multiple of anything
PAUSE = 10
"""A trainer waits at each version that is a multiple of this; between them it goes as fast as it can."""


def network(bias: bool = True) -> torch.nn.Sequential:
    torch.manual_seed(1)
    # The last has no part in tensor parallelism: it is sharded over another mesh, or not at all.
    return torch.nn.Sequential(
        torch.nn.Linear(13, HIDDEN, bias=bias),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, 7, bias=bias),
        torch.nn.LayerNorm(7),
    )


def say(*words: object) -> None:
    print(*words, flush=True)


def filled(model: Any, step: int) -> None:
    """Has every element say which one it is, and of which step."""
    with torch.no_grad():
        for n, tensor in enumerate(model.state_dict().values()):
            whole = torch.arange(tensor.numel(), dtype=torch.float32).reshape(tensor.shape) * 4 + 1000 * n + step
            if isinstance(tensor, DTensor):
                whole = distribute_tensor(whole, tensor.device_mesh, [Replicate()] * tensor.device_mesh.ndim)
                whole = whole.redistribute(tensor.device_mesh, tensor.placements)
                tensor.to_local().copy_(whole.to_local())
            else:
                tensor.copy_(whole)


def check(model: Any, step: int) -> None:
    for n, (name, tensor) in enumerate(model.state_dict().items()):
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        expected = torch.arange(tensor.numel(), dtype=torch.float32).reshape(tensor.shape) * 4 + 1000 * n + step
        assert torch.equal(whole.float(), expected.to(tensor.dtype).float()), name


def sharded(kind: str, dtype: torch.dtype = torch.float32) -> Any:
    model = network().to(dtype)
    world = dist.get_world_size()
    if kind == "fsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    elif kind == "tp":
        mesh = init_device_mesh("cpu", (world,))
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    elif kind == "fsdp_tp":
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
    return model


def until_told() -> None:
    """Waits for a line, which says that somebody serves the version that is there."""
    if dist.get_rank() == 0:
        sys.stdin.readline()
    dist.barrier()


def train(url: str, kind: str, steps: str) -> None:
    model = sharded(kind)
    for step in range(int(steps)):
        filled(model, step)
        version = polyduct.torch.publish(url, model, step=step)
        assert version == step
        if dist.get_rank() == 0:
            say("published", step)
        if step % PAUSE == 0:
            until_told()
    until_told()


def serve(url: str, kind: str, last: str, dtype: str = "float32") -> None:
    model = sharded(kind, getattr(torch, dtype))
    seen = -1
    while seen < int(last):
        version = polyduct.torch.refresh(url, model)
        if version is None:
            continue
        assert version > seen or version == 0, "the trainer began anew, at most"
        check(model, version)
        seen = version
        if dist.get_rank() == 0:
            say("serves", version)
    polyduct.torch.close(url)


def train_large(url: str, *versions: str) -> None:
    """Publishes weights that take longer to fetch than a look, all elements of which are the version."""
    for version in versions:
        polyduct.torch.publish(url, {f"t{n}": torch.full((2**20,), float(version)) for n in range(24)}, step=int(version))
        say("published", version)
        sys.stdin.readline()


def layouts() -> None:
    """Compares the boxes of layouts with what torch gathers."""
    rank, world = dist.get_rank(), dist.get_world_size()
    meshes = [init_device_mesh("cpu", shape) for shape in [(world,), (2, world // 2)]]
    placements = [
        [[Shard(0)], [Shard(1)], [Replicate()]],
        [[Shard(0), Shard(1)], [Shard(0), Shard(0)], [Shard(1), Shard(0)], [Replicate(), Shard(1)], [Shard(1), Shard(1)]],
    ]
    tried = 0
    for mesh, places in zip(meshes, placements):
        for place in places:
            for shape in [(10, 6), (3, 5), (1, 9), (16, 4)]:
                whole = torch.arange(shape[0] * shape[1]).reshape(shape)
                tensor = distribute_tensor(whole, mesh, place)
                held = polyduct.layout_of(tensor)
                assert (held.shape, held.dtype) == (shape, "int64")
                layout = polyduct.Layout(held.layout or "", shape=shape, units=world)
                mine = np.zeros(0, "i8")
                for box in layout.boxes(rank):
                    mine = whole[tuple(slice(*side) for side in box)].numpy()
                np.testing.assert_array_equal(mine.ravel(), tensor.to_local().numpy().ravel())
                tried += 1
    for kind in ("fsdp", "tp", "fsdp_tp"):
        for tensor in sharded(kind).state_dict().values():
            polyduct.layout_of(tensor)
            tried += 1
    if rank == 0:
        say("layouts", tried)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](*sys.argv[2:])
    dist.destroy_process_group()
    # Whatever torch leaves running has no part in how a unit ends.
    sys.stdout.flush()
    os._exit(0)
