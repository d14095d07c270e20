"""An array of Dask, each chunk of which an actor writes on the worker that has it.

python examples/libraries/dask_actors.py pipe:field
"""

import sys

import dask.array as da
import numpy as np
from dask.distributed import Client

import polyduct


class Chunk:
    """Writes a chunk in each step."""

    def __init__(self, url: str, held: polyduct.Array, unit: int, units: int) -> None:
        self.out = polyduct.open(url, "w", arrays={"field": held}, unit=unit, units=units, timeout=60)

    def write(self, block: np.ndarray, time: int) -> int:
        self.out.write({"field": block}, time=time)
        return self.out.unit

    def close(self) -> None:
        self.out.close()


def main(url: str) -> None:
    field = da.add.outer(da.arange(300, chunks=150), da.arange(200, chunks=100)).astype("f8")
    held, units = polyduct.layout_of(field), field.npartitions
    # Every unit waits for the others when it opens the port: each has a worker of its own.
    with Client(n_workers=units, threads_per_worker=1, dashboard_address=None) as client:
        workers = list(client.scheduler_info(n_workers=-1)["workers"])
        chunks = [
            client.submit(Chunk, url, held, unit, units, actor=True, workers=[workers[unit]]) for unit in range(units)
        ]
        actors = [chunk.result() for chunk in chunks]
        for time in range(3):
            blocks = client.compute([block for row in (field + time).to_delayed() for block in row], sync=True)
            written = [actor.write(block, time) for actor, block in zip(actors, blocks)]
            print(f"step {time}: units {[each.result() for each in written]} of {held.layout} wrote", flush=True)
        for closed in [actor.close() for actor in actors]:
            closed.result()


if __name__ == "__main__":
    main(sys.argv[1])
