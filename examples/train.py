"""A trainer whose weights are sharded by rows refreshes a server that has them by columns, in bfloat16.

polyduct run "-n 4 python examples/train.py | -n 2 python examples/serve.py"
"""

import numpy as np

import polyduct

out = polyduct.open("-", "w", shape=(512, 2048), dtype="f4", layout="block,*")
weights = np.zeros(out.local_shape, out.dtype)
random = np.random.default_rng(out.unit)
for _ in range(4):
    for _ in range(10):  # some steps of training
        weights += 0.01 * random.standard_normal(out.local_shape, dtype="f4")
    out.write(weights)  # the weights stay in the trainer's own memory: one copy more
out.close()
