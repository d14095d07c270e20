"""What the tests share: names, units in threads, units in processes."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import itertools
import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import polyduct

ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(sys.executable).with_name("polyduct")
_counter = itertools.count()


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test is a unit of whatever started the tests."""
    for name in list(os.environ):
        if name.startswith(("POLYDUCT_", "OMPI_", "PMI_", "SLURM_")) or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)


@pytest.fixture
def pipe() -> str:
    """A URL of this test alone."""
    return f"pipe:py-{os.getpid()}-{next(_counter)}"


@pytest.fixture
def port() -> int:
    """A port where nobody listens."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture
def ends_threads() -> Iterator[None]:
    """Ends the threads that zarr-python keeps, and has Dask use none: later tests fork, and count their own."""
    before = set(threading.enumerate())
    with contextlib.ExitStack() as stack:
        if importlib.util.find_spec("dask") is not None:
            stack.enter_context(importlib.import_module("dask").config.set(scheduler="synchronous"))
        yield
    if "zarr.core.sync" in sys.modules:
        sys.modules["zarr.core.sync"].cleanup_resources()
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive(), thread.name


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Calls all at once, each in a thread, and gives what they return. The first exception is raised; of
    losses that follow from another's only if there is nothing else."""
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []

    def run(k: int) -> None:
        try:
            results[k] = calls[k]()
        except BaseException as e:  # noqa: BLE001
            errors.append(e)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise min(errors, key=lambda e: isinstance(e, polyduct.PeerLost))
    return results


class Process:
    """A Python program that tells where it is by lines and waits for lines."""

    def __init__(self, code: str, *args: object, env: dict[str, str] | None = None) -> None:
        # Whatever started the tests in the background may have had Ctrl-C ignored.
        prelude = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        prelude += "import sys, numpy as np, polyduct\ndef say(*x): print(*x, flush=True)\ndef wait(): return sys.stdin.readline()\n"
        self.process = subprocess.Popen(
            [sys.executable, "-c", prelude + textwrap.dedent(code), *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> str:
        """The next line that it says."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self) -> None:
        """Lets it go on from ``wait()``."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Waits for its end: status, what else it said, what it complained about."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Starts Python programs; none is left at the end."""
    started: list[Process] = []

    def start(code: str, *args: object, env: dict[str, str] | None = None) -> Process:
        started.append(Process(code, *args, env=env))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        for stream in (one.process.stdin, one.process.stdout, one.process.stderr):
            if stream is not None:
                stream.close()
