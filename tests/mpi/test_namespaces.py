"""Ranks on two hosts, which are network namespaces: launchers start them there by an agent, as by ssh. Ranks of one
host share memory, and TCP is between the hosts."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hosts import Hosts
from jobs import COMMAND, FAR, LIBRARIES, PARTS, Programs, environment, mpi4py, segments, tool

#: What launchers have instead of ssh: it goes to a host's network, under its name.
AGENT = """\
#!/bin/sh
while :; do case $1 in -*) shift;; *) break;; esac; done
case $1 in
{cases}
*) echo "no host is $1" >&2; exit 1;;
esac
name=$1
shift
exec nsenter --net -t $keeper unshare --uts sh -c "hostname $name; $*"
"""
NAMED = ["unshare", "--uts", "sh", "-c", 'hostname $0; exec "$@"']


class Pair:
    """Two hosts, and jobs whose ranks take turns on them."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self.hosts = hosts
        self.agent = folder / "agent"
        self.names = [hosts.address(k) for k in range(2)]
        self.networks = [os.readlink(f"/proc/{keeper}/ns/net") for keeper in hosts.keepers]
        cases = (f"{name}) keeper={keeper};;" for name, keeper in zip(self.names, hosts.keepers))
        self.agent.write_text(AGENT.format(cases="\n".join(cases)))
        self.agent.chmod(0o755)

    def start(self, library: str, ranks: int, *command: object, **more: str) -> subprocess.Popen[str]:
        """A job whose launcher is on the first host."""
        if library == "mpich":
            by = ["-launcher", "ssh", "-launcher-exec", str(self.agent), "-hosts", ",".join(self.names)]
        else:
            hosts = ",".join(f"{name}:{(ranks + 1) // 2}" for name in self.names)
            # Both hosts have the same processors.
            unbound = ["--map-by", "node", "--bind-to", "none"]
            by = ["--mca", "plm_rsh_agent", str(self.agent), "--host", hosts, *unbound]
        words = [*NAMED, self.names[0], COMMAND, "mpi", tool(library, "mpirun"), *by, "-n", ranks, *command]
        return self.hosts.start(
            0,
            *map(str, words),
            env=environment(**{"POLYDUCT_JOB_KEY": FAR["POLYDUCT_JOB_KEY"], **more}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, library: str, ranks: int, *command: object, seconds: float = 120, **more: str) -> str:
        job = self.start(library, ranks, *command, **more)
        said, _ = job.communicate(timeout=seconds)
        assert job.returncode == 0, said[-6000:]
        return said

    def processes(self) -> dict[int, int]:
        """Those that run on the hosts, and on which."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                network = os.readlink(entry / "ns/net")
                if network in self.networks and entry.name not in self.hosts.keepers:
                    found[int(entry.name)] = self.networks.index(network)
        return found

    def end(self) -> None:
        """Kills all that runs there."""
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def sent(self, host: int) -> dict[str, int]:
        """Bytes that a host has sent, by its devices."""
        lines = Path(f"/proc/{self.hosts.keepers[host]}/net/dev").read_text().splitlines()[2:]
        fields = (line.replace(":", " ").split() for line in lines)
        return {"lo" if name == "lo" else "cable": int(counts[8]) for name, *counts in fields}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """The hosts of a test, gone after it with all that still runs there."""
    with Hosts(2) as hosts:
        if not hosts.apart:
            pytest.skip("the system allows no network namespaces")
        one = Pair(hosts, tmp_path)
        try:
            yield one
        finally:
            one.end()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_byte_arrives(library: str, ranks: int, program: Programs, pair: Pair) -> None:
    assert f"{ranks} ranks exchanged all" in pair.run(library, ranks, program[library, "exchange"])
    # Each rank sends 1.1 MB to each of the other host, and to those of its own what no network sees.
    for sent in map(pair.sent, range(2)):
        assert sent["cable"] > 1_100_000 * (ranks // 2) ** 2 and sent["lo"] < 500_000, sent


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_byte_arrives_where_all_ranks_use_the_network(
    library: str, program: Programs, pair: Pair
) -> None:
    command = program[library, "exchange"]
    said = pair.run(library, 4, command, POLYDUCT_NEAR="0", POLYDUCT_TRUSTED_NETWORK="1")
    assert "4 ranks exchanged all" in said
    assert all(pair.sent(host)["lo"] > 2_200_000 for host in range(2))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_product_of_matrices_is_that_of_the_textbook(
    library: str, ranks: int, program: Programs, pair: Pair
) -> None:
    said = pair.run(library, ranks, program[library, "matrix"], 231)
    assert f"{ranks} ranks, 231 x 231: 0 wrong" in said


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("where", [0, 1])
def test_a_rank_that_is_killed_on_either_host_ends_all(
    library: str, ranks: int, where: int, program: Programs, pair: Pair
) -> None:
    before = segments()
    job = pair.start(library, ranks, program[library, "wait"])
    assert job.stdout is not None
    waiting: list[int] = []
    while len(waiting) < ranks:
        line = job.stdout.readline()
        assert line, "the job has ended"
        waiting += map(int, re.findall(r"^\d+$", line.strip()))
    processes = pair.processes()
    assert sorted(processes[rank] for rank in waiting) == sorted(k % 2 for k in range(ranks))
    watched = {process: os.pidfd_open(process) for process in processes}
    os.kill(next(rank for rank in waiting if processes[rank] == where), signal.SIGKILL)
    said, _ = job.communicate(timeout=30)
    assert job.returncode != 0, said
    # Ranks, launchers and their helpers, of both hosts.
    for process, descriptor in watched.items():
        assert select.select([descriptor], [], [], 10)[0], f"a process lives on: {process}"
        os.close(descriptor)
    assert not pair.processes() and segments() <= before


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_network_that_is_cut_ends_the_ranks_of_both_hosts(
    library: str, program: Programs, pair: Pair
) -> None:
    """Nobody says that the other is gone, and launchers do not notice."""
    traffic = [program[library, "traffic"], 5, "kill", 9, 0]
    job = pair.start(library, 2, *traffic, POLYDUCT_MESSAGE_SILENCE="1s")
    assert job.stdout is not None
    ranks: list[int] = []
    while len(ranks) < 2:
        line = job.stdout.readline()
        assert line, "the job has ended"
        ranks += map(int, re.findall(r"^rank \d+ is (\d+)", line.strip()))
    watched = [os.pidfd_open(rank) for rank in ranks]
    cut = ["nsenter", "--net", "-t", pair.hosts.keepers[1], "ip", "link", "set", "h1", "down"]
    subprocess.run(cut, check=True)
    for rank in watched:
        assert select.select([rank], [], [], 20)[0], "a rank goes on"
        os.close(rank)
    pair.end()
    job.communicate(timeout=30)


def test_without_a_key_hosts_have_no_way_to_each_other(program: Programs, pair: Pair) -> None:
    job = pair.start("mpich", 2, program["mpich", "exchange"], POLYDUCT_JOB_KEY="")
    said, _ = job.communicate(timeout=60)
    assert job.returncode != 0, said


@pytest.mark.parametrize("library", ["mpich", "openmpi"])
@pytest.mark.parametrize("ranks", [2, 4, 5])
@pytest.mark.parametrize("part", PARTS)
def test_the_tests_of_mpi4py_pass(library: str, ranks: int, part: str, pair: Pair) -> None:
    said = pair.run(library, ranks, *mpi4py(library, part), seconds=1800)
    assert len(re.findall(r"Ran \d+ tests", said)) == ranks and "FAILED" not in said, said[-3000:]
