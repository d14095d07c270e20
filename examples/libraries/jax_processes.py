"""An array of JAX on the devices of several processes, which are the units: nothing else need be said.

for n in 0 1 2 3; do python examples/libraries/jax_processes.py pipe:field $n 4 localhost:12345 & done; wait
"""

import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import polyduct

url, process, processes, coordinator = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
jax.config.update("jax_platforms", "cpu")
jax.distributed.initialize(coordinator, processes, process)

rows = NamedSharding(Mesh(np.array(jax.devices()), ("devices",)), PartitionSpec("devices"))
whole = np.add.outer(np.arange(400.0), np.arange(100.0)).astype("f4")
field = jax.make_array_from_callback(whole.shape, rows, lambda index: whole[index])

with polyduct.open(url, "w", arrays={"field": field}, timeout=60) as out:
    for time in range(3):
        out.write({"field": field + time}, time=time)
    print(f"process {jax.process_index()} of {jax.process_count()} wrote {out.arrays['field'].layout}", flush=True)
