"""The server: its own sharding, its own type; polyduct converts on the way. See train.py."""

import numpy as np

import polyduct

source = polyduct.open("-", "r", layout="*,block", dtype="bf16", convert=True)
weights = np.empty(source.local_shape, source.local_dtype)  # what the model uses
while source.read(out=weights) is not None:
    # Without the package ml_dtypes NumPy has no bfloat16, and the bits come as uint16: the upper halves of
    # float32.
    bits = weights.view("u2").astype("u4") << 16
    norm = float(np.linalg.norm(bits.view("f4")))
    print(
        f"server {source.unit}: weights of version {source.number}, {weights.nbytes >> 10} KiB, norm {norm:.2f}"
    )
