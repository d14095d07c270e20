"""The stage that reads what rows.c writes, in columns, and writes it on in columns of its own."""

import polyduct

out = None
with polyduct.open("-", layout="*,block") as steps:
    for a in steps:
        if out is None:
            out = polyduct.open("-", "w", shape=steps.shape, dtype=steps.dtype, layout="*,block")
        out.write(a)
assert out is not None
out.close()
