"""Units in real processes: how they end, and what the others learn."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Process

import polyduct

Start = Callable[..., Process]

WRITER = """
    url, unit, units = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    out = polyduct.open(url, "w", shape=(units, 3), dtype="i4", layout="block,*", unit=unit, units=units, program="w")
    out.write(np.full((1, 3), unit, "i4"))
    say("wrote")
    wait()
"""


def reader(pipe: str, **options: object) -> polyduct.Reader:
    return polyduct.open(pipe, layout="*,*", timeout=30, **options)  # type: ignore[call-overload, no-any-return]


def test_a_killed_unit_is_named_at_once(pipe: str, start: Start) -> None:
    writers = [start(WRITER, pipe, unit, 3) for unit in range(3)]
    with reader(pipe) as port:
        assert [w.hear() for w in writers] == ["wrote"] * 3
        assert next(port)[:, 0].tolist() == [0, 1, 2]
        writers[1].signal(signal.SIGKILL)
        # From here on its death is known to everybody who asks.
        os.waitid(os.P_PID, writers[1].pid, os.WEXITED | os.WNOWAIT)
        known = time.perf_counter()
        with pytest.raises(polyduct.PeerLost) as e:
            port.read()
        assert time.perf_counter() - known < 0.1
        assert (e.value.unit, e.value.side, e.value.pid) == (1, "writer", writers[1].pid)
        assert "writer unit 1" in str(e.value)


def test_a_killed_reader_is_named(pipe: str, start: Start) -> None:
    other = start("port = polyduct.open(sys.argv[1], layout='*')\nsay('open')\nwait()", pipe)
    out = polyduct.open(pipe, "w", shape=1, dtype="i4", layout="*", timeout=30)
    assert other.hear() == "open"
    other.signal(signal.SIGKILL)
    with pytest.raises(polyduct.PeerLost) as e:
        while True:
            out.write([1])
    assert (e.value.side, e.value.pid) == ("reader", other.pid)


@pytest.mark.parametrize("where", ["read", "open", "write", "step"])
def test_ctrl_c_in_a_blocking_call(pipe: str, start: Start, where: str) -> None:
    """Nothing tells when the call has begun to block, but a signal before it has the same answer."""
    code = f"""
        where = {where!r}
        try:
            if where == "open":
                say("open")
                polyduct.open(sys.argv[1] + "-nobody", layout="*")
            elif where == "read":
                port = polyduct.open(sys.argv[1], layout="*")
                say("open")
                port.read()
            else:
                port = polyduct.open(sys.argv[1], "w", shape=1, dtype="i4", layout="*", depth=1)
                port.write([1])
                say("open")
                port.write([2]) if where == "write" else port.step().__enter__()
        except KeyboardInterrupt:
            say("interrupted")
    """
    one = start(code, pipe)
    other = None
    if where == "read":
        other = polyduct.open(pipe, "w", shape=1, dtype="i4", layout="*", timeout=30)
    elif where != "open":
        other = polyduct.open(pipe, layout="*", timeout=30)
    assert one.hear() == "open"
    one.signal(signal.SIGINT)
    assert one.hear() == "interrupted"
    status, _, complaints = one.end()
    assert (status, complaints) == (0, "")
    if other is not None:
        other.close()


def test_a_handler_of_a_signal_may_raise_what_it_likes(pipe: str, start: Start) -> None:
    code = """
        import signal
        class Enough(Exception): pass
        def enough(*_): raise Enough
        signal.signal(signal.SIGUSR1, enough)
        port = polyduct.open(sys.argv[1], layout="*")
        try:
            say("open")
            port.read()
        except Enough:
            say("enough")
        say(port.read()[0])
    """
    one = start(code, pipe)
    out = polyduct.open(pipe, "w", shape=1, dtype="i4", layout="*", timeout=30)
    assert one.hear() == "open"
    one.signal(signal.SIGUSR1)
    assert one.hear() == "enough"
    out.write([9])
    assert one.hear() == "9"
    out.close()


def test_other_threads_run_while_one_waits(pipe: str, start: Start) -> None:
    code = """
        import threading
        port = polyduct.open(sys.argv[1], layout="*")
        waiting = threading.Thread(target=lambda: say("got", port.read()[0]))
        waiting.start()
        say("free", sum(range(1000)))
        waiting.join()
    """
    one = start(code, pipe)
    out = polyduct.open(pipe, "w", shape=1, dtype="i4", layout="*", timeout=30)
    assert one.hear() == "free 499500"
    out.write([4])
    assert one.hear() == "got 4"
    out.close()
    assert one.end()[0] == 0


END = """
    def main():
        out = polyduct.open(sys.argv[1], "w", shape=(1, 3), dtype="i4", layout="*,*")
        out.write([[1, 2, 3]])
        {end}
    {call}
"""


@pytest.mark.parametrize(
    ("end", "call", "complete"),
    [
        ("globals()['keep'] = out", "main()", True),
        ("return out", "main()", True),
        ("globals()['keep'] = out; sys.exit(0)", "main()", True),
        ("1 / 0", "main()", False),
        ("globals()['keep'] = out; 1 / 0", "main()", False),
        ("globals()['keep'] = out; raise KeyboardInterrupt", "main()", False),
        ("out.step().__enter__(); globals()['keep'] = out", "main()", True),
        ("import os; os._exit(0)", "main()", None),
    ],
    ids=["kept", "dropped", "exit", "raised", "raised-kept", "interrupt", "open-step", "no-goodbye"],
)
def test_the_end_of_the_interpreter(pipe: str, start: Start, end: str, call: str, complete: bool | None) -> None:
    one = start(END.format(end=end, call=call), pipe)
    port = reader(pipe)
    assert next(port).tolist() == [[1, 2, 3]]
    if complete is True:
        assert list(port) == []
    elif complete is False:
        with pytest.raises(polyduct.PeerAborted):
            port.read()
    else:
        with pytest.raises(polyduct.PeerLost):
            port.read()
    one.end()


# Since Python 3.13 a child that fails tells nobody before its ports are gone; `with` always works.
ENDS = ["returns", "fails in with"] + (["fails"] if sys.version_info < (3, 13) else [])


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("end", ENDS)
def test_a_child_of_multiprocessing(pipe: str, start: Start, method: str, end: str, tmp_path: Path) -> None:
    fails = end.startswith("fails")
    program = tmp_path / "program.py"
    program.write_text(f"""
import contextlib, multiprocessing, sys, polyduct

def child(url):
    global out
    out = polyduct.open(url, "w", shape=(1, 3), dtype="i4", layout="*,*")
    with out if {end == "fails in with"} else contextlib.nullcontext():
        out.write([[1, 2, 3]])
        if {fails}:
            raise SystemError("no good")

if __name__ == "__main__":
    one = multiprocessing.get_context({method!r}).Process(target=child, args=(sys.argv[1],))
    one.start()
    one.join()
    print(one.exitcode)
""")
    code = "import runpy; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    one = start(code, program, pipe)
    port = reader(pipe)
    assert next(port).tolist() == [[1, 2, 3]]
    if fails:
        with pytest.raises(polyduct.PeerAborted):
            port.read()
    else:
        assert list(port) == []
    assert one.end()[1] == f"{int(fails)}\n"


def test_a_fork_does_not_speak_for_its_parent(pipe: str, start: Start) -> None:
    code = """
        import os
        out = polyduct.open(sys.argv[1], "w", shape=1, dtype="i4", layout="*")
        child = os.fork()
        if child == 0:
            try:
                out.write([1])
            except polyduct.Misuse:
                say("refused")
            del out
            sys.exit(0)
        os.waitpid(child, 0)
        out.write([2])
        out.close()
    """
    one = start(code, pipe)
    port = polyduct.open(pipe, layout="*", timeout=30)
    assert [int(b[0]) for b in port] == [2]
    status, out, err = one.end()
    assert (status, out) == (0, "refused\n"), err


def test_daemon_threads_do_not_hold_up_the_end(pipe: str, start: Start) -> None:
    code = """
        import threading
        port = polyduct.open(sys.argv[1], layout="*")
        threading.Thread(target=port.read, daemon=True).start()
        say("open")
    """
    one = start(code, pipe)
    out = polyduct.open(pipe, "w", shape=1, dtype="i4", layout="*", timeout=30)
    assert one.hear() == "open"
    assert one.end()[0] == 0
    out.close()


def test_a_replacement_goes_on(pipe: str, start: Start) -> None:
    code = """
        url, unit, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
        out = polyduct.open(url, "w", shape=2, dtype="i4", layout="block", unit=unit, units=2, program="w", on_loss="wait")
        for k in range(first, 4):
            out.write([10 * k + unit])
            say(k)
            wait()
        out.close()
    """
    one, lost = start(code, pipe, 0, 0), start(code, pipe, 1, 0)
    port = polyduct.open(pipe, layout="*", timeout=30)
    assert (one.hear(), lost.hear()) == ("0", "0")
    assert next(port).tolist() == [0, 1]
    lost.signal(signal.SIGKILL)
    lost.process.wait()
    one.tell()
    assert one.hear() == "1"
    new = start(code, pipe, 1, 1)
    assert new.hear() == "1"
    assert next(port).tolist() == [10, 11]
    for k in (2, 3):
        one.tell(), new.tell()
        assert (one.hear(), new.hear()) == (str(k), str(k))
        assert next(port).tolist() == [10 * k, 10 * k + 1]
    one.tell(), new.tell()
    assert list(port) == []
