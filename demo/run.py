"""The demo: stars in the Hubble deep field, found by 4 + 3 processes that know nothing of each other.

    python demo/run.py [--out DIRECTORY]

`denoise.py` works on blocks of rows, `stars.py` on blocks of columns; polyduct moves every pixel from the
first to the second, with the halos that each asks for, and reads and writes the files with all processes at
once. The image is the one that the scikit-image package ships, so nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import denoise
import numpy as np
import picture
import stars as finder
from skimage import data

import polyduct

HERE = Path(__file__).resolve().parent
WRITERS, READERS = 4, 3


def main() -> int:
    options = argparse.ArgumentParser(description="Stars in the Hubble deep field, found by 4 + 3 processes.")
    options.add_argument("--out", type=Path, default=Path("out"), help="where the files go (default: out)")
    out: Path = options.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    image = (data.hubble_deep_field() / 255).astype("f4")
    np.save(out / "hubble.npy", image)
    stars = out / "stars.npy"
    stars.unlink(missing_ok=True)

    here = os.path.relpath(HERE)
    pipeline = f"< {out}/hubble.npy -n {WRITERS} python {here}/denoise.py | -n {READERS} python {here}/stars.py > {stars}"
    bin_dir = Path(sys.executable).parent
    command = [str(bin_dir / "polyduct"), "run", pipeline, "--stats", "--json", str(out / "stats.json")]
    print(f'polyduct run "{pipeline}"\n', flush=True)
    start = time.perf_counter()
    # `python` is the one that runs this, and its processes share the cores: one thread each.
    environment = os.environ | {"PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    status = subprocess.run(command, env=environment).returncode
    if status != 0:
        return status
    seconds = time.perf_counter() - start

    found = np.load(stars).reshape(image.shape[:2])
    stats = json.loads((out / "stats.json").read_text())
    moves = picture.Moves(
        polyduct.Layout("block,*,*", shape=image.shape, units=WRITERS, dtype="f4"),
        polyduct.Layout(f"*,block,*;halo=0,{finder.HALO},0", shape=image.shape, units=READERS, dtype="f4"),
        polyduct.Layout(f"block,*,*;halo={denoise.HALO},0,0", shape=image.shape, units=WRITERS, dtype="f4"),
    )
    path = out / "demo.png"
    picture.draw(image, found, moves, stats, seconds).save(path)
    report(found, moves, stats, seconds)
    print(f"\npicture: {path}\nresult:  {stars}")
    return 0


def report(found: np.ndarray, moves: picture.Moves, stats: dict, seconds: float) -> None:
    """What was found and what was moved, in words."""
    print(f"\n{np.count_nonzero(found)} objects found in {seconds:.1f} s")
    traffic = moves.traffic
    print(
        f"from rows to columns: {traffic.sum() / 1e6:.1f} MB, {moves.halo_bytes / 1e6:.1f} MB of it for halos"
    )
    for unit, row in enumerate(traffic):
        print(f"  rows {unit} → columns 0..{READERS - 1}: " + ", ".join(f"{n / 1e6:.2f} MB" for n in row))
    for pipe in stats["pipes"]:
        readers = pipe["readers"]
        if pipe["url"].startswith("pipe:") and readers["copy_s"] > 0:
            rate = traffic.sum() / len(traffic[0]) / readers["copy_s"] / 1e9
            print(f"copied by each reader at {rate:.2f} GB/s, straight from the writers' slots to its array")


if __name__ == "__main__":
    sys.exit(main())
