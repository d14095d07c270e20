"""Arrays of LEN bytes there and back between two ranks of mpi4py, in its fast way (`Send`, `Recv` of a NumPy
array); or with --put-get `Put` and `Get` of them in a window that the other rank has allocated, each with its
`Flush`.

    mpiexec -n 2 python message_mpi4py.py LEN REPEAT [--put-get] [--busy]

Each rank keeps to a core of its own; with --busy none does, and a process computes beside them. Prints a line
of JSON; the time is one way, with --put-get of both. Every value is checked.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np
from mpi4py import MPI

COUNT = 2000


def main() -> None:
    length, repeat = int(sys.argv[1]), int(sys.argv[2])
    comm = MPI.COMM_WORLD
    rank, cpus = comm.rank, sorted(os.sched_getaffinity(0))
    beside = None
    if "--busy" in sys.argv:
        if rank == 0:
            beside = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    elif len(cpus) > 1:
        os.sched_setaffinity(0, {cpus[rank]})
    mine, got = np.zeros(max(length // 8, 1), "i8"), np.zeros(max(length // 8, 1), "i8")
    window = MPI.Win.Allocate(mine.nbytes, 8, comm=comm) if "--put-get" in sys.argv else None
    if window and rank == 0:
        window.Lock(1)
    times = []
    for _ in range(repeat + 2):
        comm.Barrier()
        start = time.perf_counter()
        for n in range(COUNT):
            if window:
                if rank == 1:
                    break
                mine[0] = n
                window.Put(mine, 1)
                window.Flush(1)
                window.Get(got, 1)
                window.Flush(1)
                assert got[0] == n
            elif rank == 0:
                mine[0] = n
                comm.Send(mine, 1)
                comm.Recv(got, 1)
                assert got[0] == n + 1
            else:
                comm.Recv(got, 0)
                got[0] += 1
                comm.Send(got, 0)
        times.append((time.perf_counter() - start) / COUNT / (1 if window else 2))
    if window:
        if rank == 0:
            window.Unlock(1)
        window.Free()
    if beside:
        beside.kill()
        beside.wait()
    if rank == 0:
        times = times[2:]
        figures = {"median_s": statistics.median(times), "min_s": min(times), "runs": repeat}
        print(
            json.dumps(
                {
                    "case": "put-get" if "--put-get" in sys.argv else "array",
                    "bytes": length,
                    "verified": True,
                    **figures,
                }
            )
        )


main()
