"""Tensors of torch as arrays, their shards as layouts, and weights from trainers to servers. Torch may be absent:
``make test-torch`` installs it aside."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import polyduct
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; `make test-torch` runs these tests with it")

import polyduct.torch  # noqa: E402: after torch is known to be there

UNITS = Path(__file__).with_name("torch_units.py")


def unique(name: str, taken: list[int] = []) -> str:  # noqa: B006: it counts
    taken.append(0)
    return f"pipe:torch-{os.getpid()}-{len(taken)}-{name}"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


class Program:
    """So many processes of `torch_units`, the first of which can be heard and spoken to."""

    def __init__(self, units: int, *arguments: object) -> None:
        port = free_port()
        self.units: list[subprocess.Popen[str]] = []
        for rank in range(units):
            env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(units), "LOCAL_RANK": str(rank)}
            env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
            env |= {"POLYDUCT_PROGRAM": f"{arguments[0]}-{port}", "POLYDUCT_JOB_KEY": "07" * 32}
            # As if they were on several hosts.
            env |= {"POLYDUCT_MESSAGE_NEAR": "0"}
            command = [sys.executable, "-W", "ignore", str(UNITS), *map(str, arguments)]
            pipe = subprocess.PIPE
            self.units.append(subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True))

    def hear(self, word: str) -> str:
        """The next line of unit 0 that begins so."""
        out = self.units[0].stdout
        assert out is not None
        for line in out:
            if line.startswith(word):
                return line.strip()
        raise AssertionError(f"{word!r} was not said: {self.errors()}")

    def say(self) -> None:
        stdin = self.units[0].stdin
        assert stdin is not None
        stdin.write("\n")
        stdin.flush()

    def kill(self) -> None:
        for unit in self.units:
            unit.kill()
        for unit in self.units:
            unit.communicate()

    def errors(self) -> str:
        self.kill_later = [unit.kill() for unit in self.units]
        return "".join(unit.communicate()[1] for unit in self.units)

    def end(self) -> None:
        for unit in self.units:
            _, errors = unit.communicate(timeout=100)
            assert unit.returncode == 0, errors


def test_layouts_of_shards_are_what_torch_gathers() -> None:
    program = Program(4, "layouts")
    assert program.hear("layouts") == "layouts 50"
    program.end()


@pytest.mark.parametrize(("trainer", "server", "dtype"), [("fsdp", "tp", "float32"), ("fsdp_tp", "fsdp", "bfloat16")])
def test_weights_go_from_one_sharding_to_another(trainer: str, server: str, dtype: str) -> None:
    url = unique("weights")
    train = Program(4, "train", url, trainer, 30)
    serve = Program(2, "serve", url, server, 29, dtype)
    for version in (0, 10, 20):
        train.hear(f"published {version}")
        serve.hear(f"serves {version}")
        train.say()
    train.hear("published 29")
    serve.end()
    train.say()
    train.end()


@pytest.mark.parametrize("across", [False, True])
def test_servers_and_trainers_come_and_go(across: bool) -> None:
    url = f"pipe://127.0.0.1:{free_port()}/weights" if across else unique("come")
    train = Program(2, "train", url, "fsdp", 3)
    train.hear("published 0")
    killed = Program(1, "serve", url, "plain", 99)
    killed.hear("serves 0")
    killed.kill()
    serve = Program(1, "serve", url, "plain", 9)
    serve.hear("serves 0")
    train.kill()
    # It serves what it has until another trainer comes.
    train = Program(2, "train", url, "fsdp", 10)
    train.hear("published 0")
    train.say()
    train.hear("published 9")
    serve.end()
    train.say()
    train.end()


def test_servers_have_weights_of_one_version_or_of_the_one_before() -> None:
    url = f"pipe://127.0.0.1:{free_port()}/weights"
    model = {f"t{n}": torch.zeros(2**20) for n in range(24)}

    def one_version() -> int:
        versions = {float(value) for tensor in model.values() for value in (tensor.min(), tensor.max())}
        assert len(versions) == 1, versions
        return int(versions.pop())

    def look(times: int = 20) -> None:
        for _ in range(times):
            polyduct.torch.refresh(url, model)
            one_version()

    def until(version: int) -> None:
        while one_version() != version:
            look(1)

    os.environ["POLYDUCT_JOB_KEY"] = "07" * 32
    os.environ["POLYDUCT_MESSAGE_NEAR"] = "0"
    try:
        train = Program(1, "train_large", url, 1, 2)
        # What is said in the first call holds for those after it, and for trainers to come.
        assert polyduct.torch.refresh(url, model, unit=0, units=1, program="server") == 1
        # Weights are on their way when the trainer is stopped,
        train.say()
        train.hear("published 2")
        train.units[0].send_signal(signal.SIGSTOP)
        look()
        train.units[0].send_signal(signal.SIGCONT)
        until(2)
        train.kill()
        train = Program(1, "train_large", url, 3, 4)
        until(3)
        # or dies.
        train.say()
        train.hear("published 4")
        look(1)
        train.kill()
        look()
        train = Program(1, "train_large", url, 5)
        until(5)
        # A server that waits for weights waits for those of the next trainer, too.
        train.kill()
        train = Program(1, "train_large", url, 6)
        assert polyduct.torch.refresh(url, model, wait=60) == 6
        assert one_version() == 6
        train.kill()
    finally:
        del os.environ["POLYDUCT_JOB_KEY"], os.environ["POLYDUCT_MESSAGE_NEAR"]
        polyduct.torch.close(url)


def test_another_model_has_the_newest_weights_too() -> None:
    url = unique("another")
    place: dict[str, int] = {"unit": 0, "units": 1}
    linear = torch.nn.Linear(2, 2, bias=False)
    done = threading.Event()
    told = [threading.Event() for _ in range(3)]

    def write() -> None:
        for version, go in enumerate(told):
            polyduct.torch.publish(url, {"weight": torch.full((2, 2), float(version))}, **place)
            assert go.wait(60)
        polyduct.torch.close(url)

    def read() -> None:
        first = {"weight": torch.zeros(2, 2)}
        assert polyduct.torch.refresh(url, first, **place) == 0
        assert polyduct.torch.refresh(url, linear) == 0 and not linear.weight.any()
        assert polyduct.torch.refresh(url, linear) is None
        told[0].set()
        assert polyduct.torch.refresh(url, linear, wait=30) == 1 and bool((linear.weight == 1).all())
        # Its tensors are others now.
        linear.double()
        told[1].set()
        assert polyduct.torch.refresh(url, linear, wait=30) == 2
        assert linear.weight.dtype == torch.float64 and bool((linear.weight == 2).all())
        # With other rules, too.
        names = {"mine": torch.zeros(2, 2)}
        assert polyduct.torch.refresh(url, names, map={"mine": "weight"}) == 2
        assert polyduct.torch.refresh(url, names, map={"mine": "weight"}) is None
        assert polyduct.torch.refresh(url, names, map=lambda name: "weight") is None
        assert not first["weight"].any()
        told[2].set()
        done.set()

    both(write, read)
    assert done.is_set()


def both(write: Any, read: Any) -> None:
    errors: list[BaseException] = []

    def guarded(side: Any) -> None:
        try:
            side()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=guarded, args=(side,)) for side in (write, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for error in errors[:1]:
        raise error


def test_tensors_are_written_and_filled_where_they_lie() -> None:
    url = unique("tensors")
    given = {"half": torch.arange(12.0).reshape(3, 4).to(torch.bfloat16), "n": torch.tensor(7)}

    def write() -> None:
        with polyduct.open(url, "w", arrays=given, unit=0, units=1, timeout=30) as out:
            out.write(given)
            out.write({"half": given["half"].requires_grad_() * 2, "n": torch.tensor(8)})

    def read() -> None:
        mine = {"half": torch.zeros(4, 3, dtype=torch.bfloat16).T, "n": torch.tensor(0)}
        with polyduct.open(url, layouts=mine, unit=0, units=1, timeout=30) as port:
            step = port.read(mine)
            assert step is not None and step["half"] is mine["half"]
            assert torch.equal(mine["half"], given["half"]) and mine["n"] == 7
            with pytest.raises(polyduct.WrongType, match="float32; expected bfloat16"):
                port.read({**mine, "half": torch.zeros(3, 4)})
            step = port.read()
            assert step is not None
            np.testing.assert_array_equal(step["half"].astype("f4"), 2 * np.arange(12.0).reshape(3, 4))

    both(write, read)


def test_tensors_are_renamed_and_fused() -> None:
    url = unique("fused")
    parts = {name: torch.full((2, 3), float(n)) for n, name in enumerate(("q", "k", "v"))}
    trainer = {**parts, "old.name": torch.ones(4), "only.here": torch.zeros(1000)}

    class Server(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.qkv = torch.nn.Parameter(torch.zeros(6, 3))
            self.new = torch.nn.Parameter(torch.zeros(4, dtype=torch.bfloat16))
            self.own = torch.nn.Parameter(torch.zeros(5))

    server = Server()
    rules = {"qkv": ["q", "k", "v"], "new": "old.name", "own": None}
    done = threading.Event()

    def write() -> None:
        assert polyduct.torch.publish(url, trainer, step=40, unit=0, units=1) == 0
        assert done.wait(30)
        polyduct.torch.close(url)

    def read() -> None:
        assert polyduct.torch.refresh(url, server, map=rules, unit=0, units=1) == 40
        assert polyduct.torch.refresh(url, server, map=rules) is None
        done.set()
        assert torch.equal(server.qkv.detach(), torch.cat(list(parts.values())))
        assert torch.equal(server.new.detach().float(), torch.ones(4)) and not server.own.any()
        polyduct.torch.close(url)

    both(write, read)
    with pytest.raises(polyduct.Misuse, match="two tensors of the model are made of 'q'"):
        polyduct.torch.refresh(url + "2", server, map=lambda name: "q")
    with pytest.raises(polyduct.Misuse, match="expected a module"):
        polyduct.torch.publish(url + "2", 7)


def test_the_example_trains_and_serves() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed; `make test-torch` runs this test with it")
    examples = UNITS.parents[2] / "examples" / "weights"
    env = {**os.environ, "STAY": "1", "OMP_NUM_THREADS": "1", "POLYDUCT_JOB": f"weights-{os.getpid()}"}

    def run(units: int, name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={units}", str(examples / name)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    train, serve = run(4, "train.py"), run(2, "serve.py")
    told, errors = serve.communicate(timeout=100)
    assert serve.returncode == 0, errors
    _, errors = train.communicate("\n", timeout=100)
    assert train.returncode == 0, errors
    right = [int(line.split()[-2].rstrip("%")) for line in told.splitlines() if line.startswith("server:")]
    assert "weights of step 199" in told and right[-1] >= 85 and right[-1] > right[0] + 20, told
