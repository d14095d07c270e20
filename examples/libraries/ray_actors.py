"""Rows of a field in each of some actors of Ray.

python examples/libraries/ray_actors.py pipe:field
"""

import sys

import numpy as np
import ray

import polyduct
from polyduct import Array


@ray.remote(num_cpus=0.5)
class Rows:
    """Computes and writes some rows."""

    def __init__(self, url: str, unit: int, units: int) -> None:
        held = {"field": Array((300, 200), "f8", "block,*")}
        self.out = polyduct.open(url, "w", arrays=held, unit=unit, units=units, timeout=60)
        [(rows, columns)] = self.out.arrays["field"].layout.boxes(unit)
        self.block = np.add.outer(np.arange(*rows, dtype="f8"), np.arange(*columns))

    def write(self, time: int) -> int:
        self.out.write({"field": self.block + time}, time=time)
        return self.out.unit

    def close(self) -> None:
        self.out.close()


def main(url: str, units: int = 3) -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    actors = [Rows.remote(url, unit, units) for unit in range(units)]
    for time in range(3):
        print(f"step {time}: units {ray.get([actor.write.remote(time) for actor in actors])} wrote", flush=True)
    ray.get([actor.close.remote() for actor in actors])
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
