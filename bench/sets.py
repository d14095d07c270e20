#!/usr/bin/env python3
"""A model of 1 GiB from four processes, half of its tensors in shards of rows and half in shards of columns, into a
standard set of safetensors files: by polyduct, each unit straight to its places; gathered on one process by
torch.distributed (gloo), where torch is there, which saves the files with the safetensors library; and gathered in
memory that all share, which takes a program written for that. Beside them, what plain files of the same bytes take
on this disk, written by as many processes in pieces of 1 MiB, by Python and, where that is there, by fio.

    python bench/sets.py [--mib 1024] [--rounds 5] [--json]

prints medians and the ratios of each round, and ends with 1 where a ratio falls short (that to gathering: by gloo). Every file is read back and
compared. All end when the bytes are on the disk (fsync).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polyduct
from safetensors.numpy import load_file, save_file

try:
    import torch
    from torch import distributed
except ImportError:
    torch = None

UNITS, TENSORS, COLUMNS = 4, 64, 2048
FILES = 4
"""Files of the set."""
GATHERED, FIO = 3.0, 0.8
"""What the ratios must be."""


def rows(mib: int) -> int:
    return (mib << 20) // (TENSORS * COLUMNS * 2) // UNITS * UNITS


def is_rows(n: int) -> bool:
    return n % 2 == 0


def content(n: int, mib: int) -> np.ndarray:
    numbers = np.arange(rows(mib) * COLUMNS, dtype=np.uint32).reshape(rows(mib), COLUMNS)
    return (numbers * 7 + n * 13).astype(np.int16)


def part(whole: np.ndarray, n: int, unit: int) -> np.ndarray:
    return np.ascontiguousarray(np.array_split(whole, UNITS, axis=0 if is_rows(n) else 1)[unit])


def shared(path: str, mib: int) -> np.ndarray:
    """Memory for all tensors that all processes have."""
    return np.memmap(path, np.int16, "r+", shape=(TENSORS, rows(mib), COLUMNS))


def sync(directory: Path) -> None:
    for path in directory.iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def unit(number: int, mib: int, memory: str) -> None:
    """Does what it is told, a line for each round, and says when it is done."""
    parts = {f"layers.{n}.weight": part(content(n, mib), n, number) for n in range(TENSORS)}
    layouts = {f"layers.{n}.weight": "block,*" if is_rows(n) else "*,block" for n in range(TENSORS)}
    arrays = {name: polyduct.Array((rows(mib), COLUMNS), "i2", layout) for name, layout in layouts.items()}
    whole = shared(memory, mib)
    if torch is not None:
        distributed.init_process_group("gloo", init_method=f"file://{memory}.gloo", rank=number, world_size=UNITS)
    print("ready", flush=True)
    for line in sys.stdin:
        way, where = line.split()
        directory = Path(where)
        if way == "polyduct":
            path = directory / "m.safetensors.index.json"
            bytes_of_file = (mib << 20) // FILES
            with polyduct.open(path, "w", arrays=arrays, unit=number, units=UNITS, shard_bytes=bytes_of_file) as out:
                out.write(parts)
        elif way == "gather":
            for n, name in enumerate(parts):
                np.array_split(whole[n], UNITS, axis=0 if is_rows(n) else 1)[number][...] = parts[name]
        elif way == "save":
            names = list(parts)
            for file in range(FILES):
                own = {names[n]: whole[n] for n in range(file * TENSORS // FILES, (file + 1) * TENSORS // FILES)}
                save_file(own, directory / f"m-{file + 1:05}-of-{FILES:05}.safetensors")
            sync(directory)
        elif way == "gloo":
            save_gathered(parts, number, directory)
            if number == 0:
                sync(directory)
        elif way == "plain":
            with open(directory / f"plain{number}", "wb", buffering=0) as out_file:
                for p in parts.values():
                    view = memoryview(p.reshape(-1).view(np.uint8))
                    for at in range(0, len(view), 1 << 20):
                        out_file.write(view[at : at + (1 << 20)])
                os.fsync(out_file.fileno())
        print("done", flush=True)


def save_gathered(parts: dict[str, np.ndarray], number: int, directory: Path) -> None:
    """Each tensor is gathered on process 0, and each file saved when its tensors are there."""
    from safetensors.torch import save_file as save_tensors

    names = list(parts)
    for file in range(FILES):
        own: dict[str, torch.Tensor] = {}
        for n in range(file * TENSORS // FILES, (file + 1) * TENSORS // FILES):
            mine = torch.from_numpy(parts[names[n]]).view(torch.uint8)
            room = [torch.empty_like(mine) for _ in range(UNITS)] if number == 0 else None
            distributed.gather(mine, room)
            if room is not None:
                pieces = [piece.view(torch.int16) for piece in room]
                own[names[n]] = torch.cat(pieces, dim=0 if is_rows(n) else 1)
        if number == 0:
            save_tensors(own, directory / f"m-{file + 1:05}-of-{FILES:05}.safetensors")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--dir", help="on the disk to measure")
    parser.add_argument("--unit", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.unit is not None:
        unit(args.unit, args.mib, args.memory)
        return 0
    memory = f"/dev/shm/sets-{os.getpid()}"
    with open(memory, "xb") as made:
        made.truncate(TENSORS * rows(args.mib) * COLUMNS * 2)
    command = [sys.executable, __file__, f"--mib={args.mib}", f"--memory={memory}"]
    pipe = subprocess.PIPE
    units = [
        subprocess.Popen([*command, f"--unit={n}"], stdin=pipe, stdout=pipe, text=True) for n in range(UNITS)
    ]

    def tell(of: list[subprocess.Popen[str]], what: str) -> None:
        for one in of:
            assert one.stdin is not None
            one.stdin.write(what + "\n")
            one.stdin.flush()
        for one in of:
            assert one.stdout is not None
            if one.stdout.readline() != "done\n":
                raise SystemExit(f"a unit failed: {what}")

    def ours(where: Path) -> None:
        tell(units, f"polyduct {where}")
        sync(where)

    def gathered(where: Path) -> None:
        tell(units, f"gather {where}")
        tell(units[:1], f"save {where}")

    def gloo(where: Path) -> None:
        tell(units, f"gloo {where}")

    def plain(where: Path) -> None:
        tell(units, f"plain {where}")

    def fio(where: Path) -> None:
        size = f"--size={args.mib * 2**20 // UNITS}"
        jobs = ["--rw=write", "--bs=1M", size, f"--numjobs={UNITS}", "--end_fsync=1", "--thread", "--name=plain"]
        subprocess.run(["fio", f"--directory={where}", *jobs], check=True, stdout=subprocess.DEVNULL)

    ways: dict[str, Callable[[Path], None]] = {"polyduct": ours, "shared memory": gathered, "plain": plain}
    if torch is not None:
        ways["gloo"] = gloo
    if shutil.which("fio") is not None:
        ways["fio"] = fio
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    try:
        for one in units:
            assert one.stdout is not None and one.stdout.readline() == "ready\n"
        for number in range(args.rounds + 1):
            for way, write in ways.items():
                with tempfile.TemporaryDirectory(dir=args.dir, prefix="sets-") as where:
                    os.sync()
                    begin = time.perf_counter()
                    write(Path(where))
                    took = time.perf_counter() - begin
                    if number > 0:
                        seconds[way].append(took)
                    elif way not in ("plain", "fio"):
                        check(Path(where), args.mib)
    finally:
        for one in units:
            one.kill()
            one.wait()
        for left in (memory, f"{memory}.gloo"):
            Path(left).unlink(missing_ok=True)
    medians = {way: statistics.median(all_of) for way, all_of in seconds.items()}
    ratios = {
        way: statistics.median(a / b for a, b in zip(seconds[way], seconds["polyduct"], strict=True))
        for way in ways
        if way != "polyduct"
    }
    must = {"gloo": GATHERED, "fio" if "fio" in ways else "plain": FIO}
    good = all(ratio >= must.get(way, 0) for way, ratio in ratios.items())
    if args.json:
        print(json.dumps({"seconds": medians, "times": ratios, "good": good}))
    else:
        for way, took in medians.items():
            print(f"{way:14} {took:7.3f} s  {args.mib / 1024 / took:6.2f} GiB/s")
        for way, ratio in ratios.items():
            words = f" (must be {must[way]})" if way in must else ""
            print(f"{way} takes {ratio:.2f} times as long{words}")
    return 0 if good else 1


def check(where: Path, mib: int) -> None:
    found = {name: array for path in where.glob("*.safetensors") for name, array in load_file(path).items()}
    for n in range(TENSORS):
        if not np.array_equal(found.pop(f"layers.{n}.weight"), content(n, mib)):
            raise SystemExit(f"tensor {n} came with other bytes")
    assert not found


if __name__ == "__main__":
    sys.exit(main())
