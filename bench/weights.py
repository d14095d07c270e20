"""Weights in bf16 from four processes, a shard of the rows each, to two, a shard of the columns each, Python to Python:
polyduct against a plain copy of as many bytes by two threads, one of each server, against torch.distributed with gloo
(all-gather, broadcast, slice, copy), and against torch.save and torch.load by way of /dev/shm.

    python bench/weights.py [--tensors 200] [--mib 1024] [--rounds 5]

prints a table of medians, each ratio of one run in which all were measured, the first three in turns; it ends with 1
where a ratio falls short. A round lasts from when all have begun it to when the last is done. Needs torch. Every way is
checked: each element says which it is.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
import polyduct
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard, init_device_mesh

TRAINERS, SERVERS = 4, 2
COLUMNS = 1024
ELEMENT = 2


def rows(tensors: int, mib: int) -> int:
    """Rows of each tensor: as many for every unit."""
    return max(1, (mib << 20) // (tensors * COLUMNS * ELEMENT) // TRAINERS) * TRAINERS


NUMBERS = (torch.arange(2 * 251 * 256, dtype=torch.int32) * 7 % 251).to(torch.bfloat16)


def content(n: int, across: range, down: range, step: int) -> torch.Tensor:
    """A box of a tensor: small whole numbers, which bf16 holds as they are, and which tell rows and columns apart."""
    first = (n * 13 + step) % 251
    rows = [(first + row * 3) % 251 + down.start for row in across]
    return torch.stack([NUMBERS[start : start + len(down)] for start in rows])


def units(role: str, spec: argparse.Namespace, extra: dict[str, str]) -> list[subprocess.Popen[str]]:
    count = TRAINERS if role == "train" else SERVERS
    own = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    port = free_port()
    command = [sys.executable, __file__, "--role", role, "--tensors", str(spec.tensors), "--mib", str(spec.mib)]
    command += ["--rounds", str(spec.rounds)]
    return [
        subprocess.Popen(
            command,
            env={**os.environ, **own, **extra, "RANK": str(unit), "LOCAL_RANK": str(unit), "MASTER_PORT": str(port)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for unit in range(count)
    ]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port: int = s.getsockname()[1]
        return port


class Meeting:
    """All six processes, apart from the groups of either program: barriers, and the peer's way."""

    def __init__(self, rank: int) -> None:
        store = dist.TCPStore(os.environ["MEET_HOST"], int(os.environ["MEET_PORT"]))
        self.store, self.rank, self.count = dist.PrefixStore("meet", store), rank, 0

    def barrier(self) -> None:
        self.count += 1
        key = f"barrier{self.count}"
        if self.store.add(key, 1) == TRAINERS + SERVERS:
            self.store.set(key + "done", "1")
        self.store.wait([key + "done"])


def fill(state: dict[str, DTensor], step: int) -> None:
    for n, tensor in enumerate(state.values()):
        local, mine = tensor.to_local(), dist.get_rank()
        across = range(mine * local.shape[0], (mine + 1) * local.shape[0])
        local.copy_(content(n, across, range(COLUMNS), step))


def check(state: dict[str, DTensor], step: int) -> None:
    for n, tensor in enumerate(state.values()):
        local, mine = tensor.to_local(), dist.get_rank()
        down = range(mine * local.shape[1], (mine + 1) * local.shape[1])
        want = content(n, range(tensor.shape[0]), down, step)
        assert torch.equal(local, want), f"tensor {n} of step {step} has other elements"
        local.zero_()


def unit(spec: argparse.Namespace) -> None:
    trains = spec.role == "train"
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    count = rows(spec.tensors, spec.mib)
    shape = (count // TRAINERS, COLUMNS) if trains else (count, COLUMNS // SERVERS)
    placements = [Shard(0 if trains else 1)]
    state = {
        f"layers.{n}.weight": DTensor.from_local(torch.zeros(shape, dtype=torch.bfloat16), mesh, placements)
        for n in range(spec.tensors)
    }
    rank = dist.get_rank() + (0 if trains else TRAINERS)
    meeting = Meeting(rank)
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ("in place", "polyduct", "copy", "gloo", "save")}

    place: dict[str, Any] = {"timeout": 120, "unit": dist.get_rank(), "units": dist.get_world_size()}
    url = os.environ["PIPE"]
    out = polyduct.open(url, "w", arrays=state, **place) if trains else None
    port = None if trains else polyduct.open(url, layouts=state, **place)
    source, target = (np.full(0 if trains else spec.nbytes // SERVERS, of, "u1") for of in (1, 0))
    for step in range(2 * spec.rounds):
        in_place = step % 2 == 0
        if trains:
            fill(state, step)
        filled = None
        if out is not None and in_place:
            # As a program does that computes its weights there.
            filled = out.step()
            with filled as memory:
                for name, tensor in state.items():
                    memory[name][...] = tensor.to_local().view(torch.int16).numpy().view(memory[name].dtype)
                meeting.barrier()
                start = time.perf_counter()
        else:
            meeting.barrier()
            start = time.perf_counter()
        if out is not None and not in_place:
            out.write(state)
        elif port is not None:
            port.read(state)
        found["in place" if in_place else "polyduct"].append((start, time.perf_counter()))
        meeting.barrier()
        if not trains:
            check(state, step)
        if in_place:
            meeting.barrier()
            start = time.perf_counter()
            np.copyto(target, source)
            found["copy"].append((start, time.perf_counter()))
            meeting.barrier()
    for end in (out, port):
        if end is not None:
            end.close()

    # A group of all: the trainers gather each tensor, and one of them sends it to the servers.
    store = dist.PrefixStore("gloo", meeting.store)
    everyone = dist.ProcessGroupGloo(store, rank, TRAINERS + SERVERS)
    for step in range(min(3, spec.rounds)):
        if trains:
            fill(state, step)
        meeting.barrier()
        start = time.perf_counter()
        for tensor in state.values():
            whole = tensor.full_tensor() if trains else torch.empty(tuple(tensor.shape), dtype=torch.bfloat16)
            everyone.broadcast([whole], dist.BroadcastOptions()).wait()
            if not trains:
                local = tensor.to_local()
                local.copy_(whole[:, dist.get_rank() * local.shape[1] : (dist.get_rank() + 1) * local.shape[1]])
        found["gloo"].append((start, time.perf_counter()))
        meeting.barrier()
        if not trains:
            check(state, step)

    # Each trainer saves its shards; servers load what they need of all.
    folder = os.environ["FOLDER"]
    for step in range(min(3, spec.rounds)):
        if trains:
            fill(state, step)
        meeting.barrier()
        start = time.perf_counter()
        if trains:
            torch.save({name: tensor.to_local() for name, tensor in state.items()}, f"{folder}/{rank}.pt")
        meeting.barrier()
        if not trains:
            for trainer in range(TRAINERS):
                shards = torch.load(f"{folder}/{trainer}.pt", mmap=True)
                for name, tensor in state.items():
                    local, part = tensor.to_local(), shards[name]
                    columns = part[:, dist.get_rank() * local.shape[1] : (dist.get_rank() + 1) * local.shape[1]]
                    local[trainer * part.shape[0] : (trainer + 1) * part.shape[0]].copy_(columns)
        found["save"].append((start, time.perf_counter()))
        meeting.barrier()
        if not trains:
            check(state, step)
    print(json.dumps(found), flush=True)
    meeting.barrier()
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensors", type=int, default=200)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--role", choices=["train", "serve"], help=argparse.SUPPRESS)
    spec = parser.parse_args()
    nbytes = spec.nbytes = spec.tensors * rows(spec.tensors, spec.mib) * COLUMNS * ELEMENT
    if spec.role:
        unit(spec)
        return 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        extra = {"MEET_HOST": "127.0.0.1", "MEET_PORT": str(meeting.port), "FOLDER": folder}
        extra["PIPE"] = f"pipe:weights-{os.getpid()}"
        team = units("train", spec, extra) + units("serve", spec, extra)
        try:
            said = [process.communicate(timeout=600)[0] for process in team]
        finally:
            for process in team:
                process.kill()
    if any(process.returncode for process in team):
        print("a process failed", file=sys.stderr)
        return 1
    # The first round of each maps memory for the first time.
    reports = [json.loads(words.splitlines()[-1]) for words in said]

    def found(way: str) -> Any:
        return zip(*(report[way] for report in reports))

    def took(way: str) -> float:
        rounds = [max(end for _, end in times) - max(start for start, _ in times) for times in found(way)]
        return statistics.median(rounds[1:] or rounds)

    ours = took("in place")
    print(f"{spec.tensors} tensors, {nbytes / 2**30:.2f} GiB of bf16, rows of {TRAINERS} to columns of {SERVERS}")
    print(f"{'way':34} {'s':>7} {'GB/s':>6} {'ratio':>6}  must")
    short = False
    for way, seconds, ratio, must in [
        ("polyduct, computed in the step", ours, 1.0, 0.0),
        ("polyduct, from memory elsewhere", took("polyduct"), took("polyduct") / ours, 0.0),
        ("a copy by two threads", took("copy"), took("copy") / ours, 0.7),
        ("gloo: gather, broadcast, slice", took("gloo"), took("gloo") / ours, 5.0),
        ("torch.save, load by /dev/shm", took("save"), took("save") / ours, 5.0),
    ]:
        falls = ratio < must
        short |= falls
        words = f"{must:.1f}{', short' if falls else ''}" if must else ""
        print(f"{way:34} {seconds:7.3f} {nbytes / seconds / 1e9:6.2f} {ratio:6.2f}  {words}")
    return int(short)


if __name__ == "__main__":
    sys.exit(main())
