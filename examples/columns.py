"""The reader of a pair: each process has a block of columns. See rows.py."""

import polyduct

with polyduct.open("-", "r", layout="*,block") as source:
    for step, a in enumerate(source):  # one array, which the next step overwrites
        print(f"columns {source.unit}: step {step}, {a.shape[0]} x {a.shape[1]}, mean {a.mean():.3f}")
