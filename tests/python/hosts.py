"""Hosts for tests: network namespaces behind a router that is one, too. All are gone with the process that made them.

Run as a program, it is the router: ``unshare -rn python hosts.py COUNT`` says a process id for each host, and waits for
the end of its input.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any


class Hosts:
    """Some hosts that reach each other. Where the system allows no namespaces they are all this one."""

    def __init__(self, count: int) -> None:
        tried = subprocess.run(["unshare", "-rn", "ip", "link", "add", "name", "a", "type", "veth", "peer", "name", "b"])
        self.apart = tried.returncode == 0
        #: The process that keeps each host's namespaces.
        self.keepers: list[str] = []
        if not self.apart:
            print("NO NETWORK NAMESPACES HERE: all on one host instead")
            return
        words = ["unshare", "-rn", sys.executable, __file__, str(count)]
        self._router = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._router.stdout is not None
        self.keepers = [self._router.stdout.readline().strip() for _ in range(count)]
        assert all(self.keepers)

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        if self.apart:
            self._router.communicate("", timeout=30)

    def address(self, host: int) -> str:
        return f"10.88.{host}.2" if self.apart else "127.0.0.1"

    def start(self, host: int, *words: str, **options: Any) -> subprocess.Popen[str]:
        """A process on that host."""
        enter = ["nsenter", "--user", "--preserve-credentials", "--net", "-t", self.keepers[host]] if self.apart else []
        return subprocess.Popen([*enter, *words], text=True, **options)


def router(count: int) -> None:
    def ip(words: str) -> None:
        subprocess.run(["ip", *words.split()], check=True)

    with open("/proc/sys/net/ipv4/ip_forward", "w") as forwards:
        forwards.write("1")
    ip("link set lo up")
    hosts = []
    for k in range(count):
        host = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo && exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert host.stdout is not None and host.stdout.readline()
        hosts.append(host)
        ip(f"link add r{k} type veth peer name h{k} netns {host.pid}")
        ip(f"addr add 10.88.{k}.1/24 dev r{k}")
        ip(f"link set r{k} up")
        inside = f"ip link set lo up; ip addr add 10.88.{k}.2/24 dev h{k}; ip link set h{k} up; ip route add default via 10.88.{k}.1"
        subprocess.run(["nsenter", "--net", "-t", str(host.pid), "sh", "-ec", inside], check=True)
        print(host.pid, flush=True)
    sys.stdin.read()
    for host in hosts:
        host.communicate()


if __name__ == "__main__":
    os.environ.pop("POLYDUCT_JOB", None)
    router(int(sys.argv[1]))
