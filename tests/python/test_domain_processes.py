"""Domains of real processes: under `polyduct run`, killed, interrupted, forked."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import COMMAND, ROOT, Process
from test_domain import fresh

import polyduct

Start = Callable[..., Process]

JOIN = "d = polyduct.domain(sys.argv[1], unit=int(sys.argv[2]), units=int(sys.argv[3]))\n"


def run(text: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(COMMAND), "run", text, "--timeout", "60s", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=90)


def program(path: Path, code: str) -> str:
    path.write_text(code)
    return f"{sys.executable} {path}"


def test_each_stage_of_a_run_has_its_domain(tmp_path: Path) -> None:
    code = """
import sys, numpy as np, polyduct
with polyduct.domain() as d:
    right, left = (d.unit + 1) % d.units, (d.unit - 1) % d.units
    got = d.sendrecv(right, np.full(3, d.unit), left)
    assert got.tolist() == [left] * 3
    sys.stdout.write(f"{d.unit} {d.units} {d.name}\\n")  # at once: lines of others come between
    polyduct.open("-", *sys.argv[1:2], **({"shape": 2, "dtype": "u1"} if sys.argv[1] == "w" else {}), layout="block").close()
"""
    python = program(tmp_path / "ring.py", code)
    done = run(f"-n 3 {python} w | -n 2 {python} r")
    assert done.returncode == 0, done.stderr
    found = sorted(line.split() for line in done.stdout.splitlines())
    assert [line[:2] for line in found] == [["0", "2"], ["0", "3"], ["1", "2"], ["1", "3"], ["2", "3"]]
    names = {line[2] for line in found}
    assert {name[-8:] for name in names} == {"-stage-0", "-stage-1"} and len(names) == 2
    assert len({name[:-8] for name in names}) == 1 and all(name.startswith("run-") for name in names)


def test_a_unit_that_fails_in_a_run_is_named(tmp_path: Path) -> None:
    code = """
import sys, polyduct
d = polyduct.domain()
d.barrier()
if d.unit == 1:
    sys.exit(7)
try:
    d.recv()
except polyduct.PeerLost as e:
    print("lost", e.unit)
    raise
"""
    done = run(f"-n 3 {program(tmp_path / 'fail.py', code)}", "--grace", "20s")
    assert done.returncode == 7, done.stderr


WAITS = """
    say("joined")
    try:
        {what}
    except polyduct.PeerLost as e:
        say("lost", e.unit, e.pid)
"""


@pytest.mark.parametrize(
    "what", ["d.recv()", "d.recv(0)", "d.barrier()", "d.serve(lambda: False)", "d.synchronise()"]
)
def test_a_killed_unit_is_named_in_all_others(start: Start, what: str) -> None:
    name = fresh()
    code = JOIN + WAITS.format(what=what).replace("\n    ", "\n")
    all_units = [
        start(code if unit != 2 else JOIN + "say('joined')\nwait()", name, unit, 4) for unit in range(4)
    ]
    assert [one.hear() for one in all_units] == ["joined"] * 4
    all_units[2].signal(signal.SIGKILL)
    for unit in (0, 1, 3):
        assert all_units[unit].hear() == f"lost 2 {all_units[2].pid}"


def test_a_call_of_a_killed_unit(start: Start) -> None:
    name = fresh()
    callee = start(JOIN + "d.function('f', lambda x: x)\nd.synchronise()\nsay('there')\nwait()", name, 1, 2)
    caller = start(
        JOIN
        + "d.synchronise()\nsay('there')\nwait()\ncall = d.call(1, 'f')\nsay('called')\n"
        + "try: call.result()\nexcept polyduct.PeerLost as e: say('gone', type(e).__name__, e.unit, e.name, e.pid)",
        name,
        0,
        2,
    )
    # From here on the callee receives nothing.
    assert (callee.hear(), caller.hear()) == ("there", "there")
    caller.tell()
    assert caller.hear() == "called"
    callee.signal(signal.SIGKILL)
    assert caller.hear() == f"gone CallPeerGone 1 f {callee.pid}"


@pytest.mark.parametrize(
    ("end", "seen"),
    [
        ("pass", "left"),
        ("sys.exit(0)", "left"),
        ("sys.exit(3)", "lost"),
        ("raise ValueError('x')", "lost"),
        ("d.leave(); sys.exit(3)", "left"),
        ("import os; os._exit(0)", "lost"),
        ("d.serving()", "left"),
        ("d.serving(); sys.exit(3)", "lost"),
        ("def f():\n  e = d\n  raise ValueError\nf()", "lost"),
    ],
)
def test_how_a_program_ends(start: Start, end: str, seen: str) -> None:
    name = fresh()
    start(JOIN + end, name, 1, 2)
    other = start(
        JOIN
        + "try: d.recv(1)\nexcept polyduct.PeerLeft as e: say('left', e.unit)\nexcept polyduct.PeerLost as e: say('lost', e.unit)",
        name,
        0,
        2,
    )
    assert other.hear() == f"{seen} 1"


@pytest.mark.parametrize(
    "what",
    [
        "d.recv()",
        "d.recv(1)",
        "d.barrier()",
        "d.synchronise()",
        "d.call(1, 'f').result()",
        "d.serve(lambda: False)",
        "while True: d.send(1, bytes(1000))",
        "d.send(1, bytes(10_000_000))",
        "polyduct.domain(sys.argv[1] + '-nobody', unit=1, units=2)",
        "polyduct.domain(sys.argv[1] + '-nobody', unit=0, units=2)",
    ],
)
def test_ctrl_c(start: Start, what: str) -> None:
    name = fresh()
    join = JOIN + "d.function('f', lambda x: x)\nd.synchronise()\n"
    other = start(join + "say('there')\nwait()", name, 1, 2)
    code = f"wait()\ntry:\n    say('there')\n    {what}\nexcept KeyboardInterrupt: say('interrupted')\n"
    one = start(join + code + "d.send(0, b'still good')\nsay(d.recv(0))", name, 0, 2)
    # From here on the other is out of its synchronise, in which it would answer.
    assert other.hear() == "there"
    one.tell()
    assert one.hear() == "there"
    one.signal(signal.SIGINT)
    assert one.hear() == "interrupted"
    assert one.hear() == "b'still good'"
    assert one.end() == (0, "", "")


def test_ctrl_c_in_a_handler(start: Start) -> None:
    """It ends the call in which the handler runs."""
    name = fresh()
    join = JOIN + "def busy(*_):\n    say('busy')\n    while True: pass\nd.handler('busy', busy)\n"
    start(join + "d.synchronise()\nd.post(0, 'busy')\nwait()", name, 1, 2)
    # It may come before the end of the synchronise.
    one = start(
        join + "try:\n    d.synchronise()\n    d.recv()\nexcept KeyboardInterrupt: say('interrupted')",
        name,
        0,
        2,
    )
    assert one.hear() == "busy"
    one.signal(signal.SIGINT)
    assert one.hear() == "interrupted"
    assert one.end() == (0, "", "")


def test_a_fork_does_not_speak_for_its_parent(start: Start) -> None:
    name = fresh()
    code = """
        import os, gc
        d = polyduct.domain(sys.argv[1], unit=0, units=2)
        d.function("f", lambda x: x)
        d.synchronise()
        d.send(0, np.zeros(100_000))
        got = d.recv(0)
        call = d.call(1, "f")
        child = os.fork()
        if child == 0:
            for use in (d.barrier, d.recv, lambda: d.send(1, b""), call.result, d.poll, d.abort):
                try:
                    use()
                except polyduct.Misuse as e:
                    assert "fork" in str(e)
                else:
                    os._exit(1)
            del d, got, call, use
            gc.collect()
            sys.exit(0)
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        d.send(1, b"go")
        say(call.result(), d.recv(1))
    """
    parent = start(code, name)
    with polyduct.domain(name, unit=1, units=2, timeout=30) as d:
        d.function("f", lambda _: b"here")
        d.synchronise()
        assert parent.hear() == "0"
        assert d.recv(0) == b"go"
        d.send(0, b"still there")
        assert parent.hear() == "b'here' b'still there'"


@pytest.mark.parametrize(
    "child", ["sys.exit(0)", "sys.exit(3)", "with d, out: sys.exit(3)", "with serving: sys.exit(3)"]
)
def test_a_fork_that_exits_ends_nothing_of_its_parent(start: Start, child: str) -> None:
    """Also where its end leaves a block of its parent's domain or port, which is the parent's to leave."""
    name = fresh()
    code = f"""
        import os
        d = polyduct.domain(sys.argv[1], unit=0, units=2)
        out = polyduct.open(sys.argv[2], "w", shape=1, dtype="u1", layout="*")
        d.function("f", lambda x: x)
        d.synchronise()
        serving = d.serving()
        child = os.fork()
        if child == 0:
            {child}
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        out.write([7])
        out.close()
        say(d.recv(1))
        serving.stop()
    """
    pipe = f"pipe:{fresh()}"
    parent = start(code, name, pipe)
    with (
        polyduct.domain(name, unit=1, units=2, timeout=30) as d,
        polyduct.open(pipe, layout="*", timeout=30) as port,
    ):
        d.function("f", lambda x: x)
        d.synchronise()
        assert parent.hear() == ("0" if child == "sys.exit(0)" else "3")
        assert port.read().tolist() == [7]
        assert d.call(0, "f", b"answers").result() == b"answers"
        d.send(0, b"still there")
        status, out, complaints = parent.end()
        assert (status, out, "Traceback" in complaints) == (0, "b'still there'\n", False), complaints


def test_a_large_array_between_processes(start: Start) -> None:
    name = fresh()
    code = JOIN + "a = d.recv(0)\nassert a.flags.f_contiguous\na *= 2\nd.send(0, a)\nd.barrier()"
    start(code, name, 1, 2)
    import numpy as np

    with polyduct.domain(name, unit=0, units=2, timeout=30) as d:
        a = np.asfortranarray(np.random.default_rng(1).random((1500, 2001)))
        d.send(1, a)
        assert np.array_equal(d.recv(1), 2 * a)
        d.barrier()


def until_asleep(one: Process) -> None:
    """When all of its threads sleep the main thread is in the call that waits."""
    tasks = Path(f"/proc/{one.pid}/task")
    while any((task / "stat").read_text().rpartition(") ")[2][0] != "S" for task in tasks.iterdir()):
        pass


def test_signal_handlers_do_not_use_the_domain(start: Start) -> None:
    name = fresh()
    code = JOIN + (
        "def usr(*_):\n"
        "    try: d.recv(0, 5)\n"
        "    except polyduct.Misuse as e: say('signal handler' in str(e))\n"
        "signal.signal(signal.SIGUSR1, usr)\n"
        "say('ready')\n"
        "say(d.recv(0))\n"
    )
    one = start("import os\n" + code, name, 1, 2)
    with polyduct.domain(name, unit=0, units=2, timeout=30) as d:
        assert one.hear() == "ready"
        until_asleep(one)
        one.signal(signal.SIGUSR1)
        assert one.hear() == "True"
        d.send(1, b"end")
        assert one.hear() == "b'end'"


def test_a_handler_that_a_signal_handler_runs_does_not_use_the_port_it_interrupts(start: Start) -> None:
    code = """
        import threading
        def write():
            with polyduct.open(sys.argv[1], "w", shape=1, dtype="u1", layout="*") as out:
                wait()
                out.write([7])
        writer = threading.Thread(target=write)
        writer.start()
        port = polyduct.open(sys.argv[1], layout="*")
        d = polyduct.domain(sys.argv[2], unit=0, units=1)
        def use(*_):
            try: port.read()
            except polyduct.Misuse as e: say("refused")
        d.handler("use", use)
        d.synchronise()
        signal.signal(signal.SIGUSR1, lambda *_: d.post(0, "use"))
        say("ready")
        say(port.read())
        port.close()
        writer.join()
    """
    one = start(code, f"pipe:{fresh()}", fresh())
    assert one.hear() == "ready"
    until_asleep(one)
    one.signal(signal.SIGUSR1)
    assert one.hear() == "refused"
    one.tell()
    assert one.end() == (0, "[7]\n", "")


# -- across hosts: the same text, and a URL --


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A URL at a port that was free just now; the job's key in the environment, and that all units use the
    network."""
    monkeypatch.setenv("POLYDUCT_JOB_KEY", "5a" * 32)
    monkeypatch.setenv("POLYDUCT_MESSAGE_NEAR", "0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"{getattr(request, 'param', 'tcp')}://127.0.0.1:{free.getsockname()[1]}"


both = pytest.mark.parametrize("network", ["tcp", "udp"], indirect=True)


@both
@pytest.mark.parametrize(("trusted", "near"), [("0", "0"), ("1", "0"), ("0", "1")])
def test_three_processes_across_hosts(start: Start, network: str, trusted: str, near: str) -> None:
    code = JOIN + (
        "assert d.name == sys.argv[1]\n"
        "d.function('twice', lambda a: a * 2)\n"
        "d.synchronise()\n"
        "right, left = (d.unit + 1) % d.units, (d.unit - 1) % d.units\n"
        "a = np.asfortranarray(np.arange(600_000.0).reshape(1000, 600) + d.unit)\n"
        "got = d.sendrecv(right, a, left)\n"
        "assert got.flags.f_contiguous and np.array_equal(got, a - d.unit + left)\n"
        "assert np.array_equal(d.call(left, 'twice', a[:3]).result(), 2 * a[:3])\n"
        "d.barrier()\n"
        "d.leave()\n"
        "say('good')"
    )
    env = {"POLYDUCT_TRUSTED_NETWORK": trusted, "POLYDUCT_MESSAGE_NEAR": near}
    all_units = [start(code, network, unit, 3, env=env) for unit in (1, 2, 0)]
    assert [one.end() for one in all_units] == [(0, "good\n", "")] * 3


@both
def test_regions_across_hosts(start: Start, network: str) -> None:
    code = JOIN + (
        "r = d.region('r', np.zeros((4, 5), 'i4'))\n"
        "d.barrier()\n"
        "if d.unit == 1:\n"
        "    want = np.zeros((4, 5), 'i4')\n"
        "    for index, values in [((1,), 7), ((..., 4), [1, 2, 3, 4]), ((slice(2, 4), slice(1, 3)), [[5, 6], [8, 9]]),\n"
        "                          ((slice(None, None, -2), 0), 3), ((3, 3), -1), ((slice(0, 0),), 1)]:\n"
        "        r.put(0, values, index)\n"
        "        want[index] = values\n"
        "        assert np.array_equal(r.get(0, index), want[index]), index\n"
        "        assert np.array_equal(r.get(0), want), index\n"
        "    out = np.empty((2, 4, 1), 'i4')[..., 0]\n"
        "    assert r.get(0, (slice(None, None, 2), slice(1, None)), out=out) is out\n"
        "    assert np.array_equal(out, want[::2, 1:])\n"
        "    for wrong, error in [(lambda: r.at(0), polyduct.RegionError), (lambda: r.put(0, 1, (4,)), polyduct.RegionError),\n"
        "                         (lambda: r.put(0, np.zeros(5)), polyduct.WrongType), (lambda: r.put(0, [1, 2]), polyduct.WrongSize),\n"
        "                         (lambda: d.region('mine', (3,)).get(0), polyduct.RegionError)]:\n"
        "        try: wrong()\n"
        "        except error as e: said = str(e)\n"
        "        else: say('no error')\n"
        "    if \"region 'mine': \" not in said: say(said)\n"
        "    d.send(0, want)\n"
        "else:\n"
        "    assert np.array_equal(d.recv(1), r.array)\n"
        "d.barrier()\n"
        "d.leave()\n"
        "say('good')"
    )
    all_units = [start(code, network, unit, 2) for unit in (0, 1)]
    assert [one.end() for one in all_units] == [(0, "good\n", "")] * 2


def test_units_of_one_host_share_memory_in_a_domain_across_hosts(
    start: Start, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POLYDUCT_MESSAGE_NEAR")
    code = JOIN + (
        "r = d.region('r', np.zeros((4, 5), 'i4'))\n"
        "d.barrier()\n"
        "if d.unit == 1:\n"
        "    there = r.at(0)\n"
        "    there[1] = 7\n"
        "    r.put(0, 9, (2, 3))\n"
        "    assert np.array_equal(r.get(0), there)\n"
        "    assert there.sum() == 44\n"
        "d.barrier()\n"
        "say('good' if r.array.sum() == 44 * (1 - d.unit) else r.array)\n"
        "if d.unit == 0: wait()\n"
        "try: d.recv(0)\n"
        "except polyduct.PeerLost as e: say('lost', e.unit, e.pid)"
    )
    near = [start(code, network, unit, 2) for unit in (0, 1)]
    assert [one.hear() for one in near] == ["good"] * 2
    near[0].signal(signal.SIGKILL)
    assert near[1].hear() == f"lost 0 {near[0].pid}"


@both
def test_a_killed_unit_is_named_across_hosts(start: Start, network: str) -> None:
    code = JOIN + "say('joined')\ntry: d.barrier()\nexcept polyduct.PeerLost as e: say('lost', e.unit, e.pid)"
    all_units = [
        start(code if unit != 2 else JOIN + "say('joined')\nwait()", network, unit, 3) for unit in range(3)
    ]
    assert [one.hear() for one in all_units] == ["joined"] * 3
    all_units[2].signal(signal.SIGKILL)
    assert [all_units[unit].hear() for unit in (0, 1)] == ["lost 2 None"] * 2


@both
def test_the_halo_example_runs_across_hosts(network: str) -> None:
    """The same program, the place in the environment."""

    def units(count: int, env: dict[str, str]) -> str:
        command = [sys.executable, str(ROOT / "examples/halo.py"), "40"]
        places = [{"POLYDUCT_UNIT": str(unit), "POLYDUCT_UNITS": str(count)} for unit in range(count)]
        all_units = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **env, **place})
            for place in places
        ]
        try:
            said = [one.communicate(timeout=60)[0] for one in all_units]
        finally:
            for one in all_units:
                one.kill()
                one.wait()
        assert [one.returncode for one in all_units] == [0] * count
        return "".join(said)

    alone = units(1, {})
    assert alone.startswith("40 steps: mean")
    assert units(3, {"POLYDUCT_DOMAIN": network}) == alone


def test_a_unit_with_another_key_is_told_at_once(
    start: Start, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(JOIN, network, 0, 2)
    monkeypatch.setenv("POLYDUCT_JOB_KEY", os.urandom(32).hex())
    with pytest.raises(polyduct.Stranger, match="turned this unit away"):
        polyduct.domain(network, unit=1, units=2, open_timeout=60)


def test_joining_across_hosts_is_refused_by_name(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(polyduct.TimeoutError, match="unit 0"):
        polyduct.domain(network, unit=1, units=2, open_timeout=0.05)
    with pytest.raises(polyduct.Refused) as missing:
        polyduct.domain(network, unit=0, units=2, open_timeout=0.05)
    assert missing.value.reason == "missing" and "unit 1" in str(missing.value)
    for url, why in [
        ("tcp://node7", "character 11"),
        ("ftp://node7:1", "tcp://HOST:PORT"),
        ("tcp://host.invalid:1", "no host"),
    ]:
        with pytest.raises(polyduct.BadUrl, match=why) as bad:
            polyduct.domain(url, unit=0, units=1, open_timeout=0.2)
        assert bad.value.url == url
    monkeypatch.delenv("POLYDUCT_JOB_KEY")
    with pytest.raises(polyduct.BadEnvironment, match="nor POLYDUCT_JOB_KEY_FILE is set") as no_key:
        polyduct.domain(network, unit=0, units=1)
    assert no_key.value.variable == "POLYDUCT_JOB_KEY" and network in str(no_key.value)
