"""Units in real processes: how they end, and what the others learn."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import COMMAND, Process

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


def test_ctrl_c_while_a_dropped_port_closes(tmp_path: Path, start: Start) -> None:
    """Unit 0 cannot complete the file before unit 1 has closed. Dropping cannot raise, what follows can."""
    code = """
        import os, threading
        def begin(unit):
            ports[unit] = polyduct.open(sys.argv[1], "w", shape=2, dtype="i4", layout="block", unit=unit, units=2, program="w")
        ports = {}
        threads = [threading.Thread(target=begin, args=(unit,)) for unit in range(2)]
        for t in threads: t.start()
        for t in threads: t.join()
        try:
            say("open")
            del ports[0]
            while True: pass
        except KeyboardInterrupt:
            say("interrupted")
        os._exit(0)
    """
    one = start(code, tmp_path / "a.npy")
    assert one.hear() == "open"
    one.signal(signal.SIGINT)
    assert one.hear() == "interrupted"
    assert one.end() == (0, "", "")


def test_ports_close_without_their_descriptors(pipe: str, start: Start) -> None:
    """As in a program that closes whatever is open before it becomes a daemon."""
    code = """
        import os, threading
        ports = []
        reader = threading.Thread(target=lambda: ports.append(polyduct.open(sys.argv[1], layout="*", timeout=30)))
        reader.start()
        ports.append(polyduct.open(sys.argv[1], "w", shape=1, dtype="i4", layout="*", timeout=30))
        reader.join()
        os.closerange(3, 4096)
        for port in ports: port.close()
        say("closed")
        os._exit(0)
    """
    one = start(code, pipe)
    assert one.hear() == "closed"
    assert one.end() == (0, "", "")


def test_ctrl_c_goes_before_an_error(pipe: str, start: Start) -> None:
    """Else it would be raised in the midst of whatever is done about the error: printing it, at the end of a
    program."""
    code = """
        import threading
        port = polyduct.open(sys.argv[1], "w", shape=1, dtype="i4", layout="*", depth=1)
        port.write([1])
        waiting = threading.Thread(target=port.write, args=([2],))
        waiting.start()
        say("open")
        try:
            while True:
                try:
                    # Refused, but only when the other thread's call has ended.
                    port._port.write(np.zeros(1, "u1"))
                except KeyboardInterrupt:
                    say("instead of the error")
                    break
                except polyduct.WrongSize:
                    pass
        except KeyboardInterrupt:
            say("later")
        waiting.join()
        port.close()
    """
    one = start(code, pipe)
    port = polyduct.open(pipe, layout="*", timeout=30)
    assert one.hear() == "open"
    # When all of its threads sleep the main thread is in the call.
    tasks = Path(f"/proc/{one.pid}/task")
    while any((task / "stat").read_text().rpartition(") ")[2][0] != "S" for task in tasks.iterdir()):
        pass
    one.signal(signal.SIGINT)
    assert [int(b[0]) for b in port] == [1, 2]
    assert one.hear() == "instead of the error"
    assert one.end() == (0, "", "")


def test_ctrl_c_is_of_the_call_that_it_ends(pipe: str, start: Start) -> None:
    """Calls of other threads on the same port, which fail at that moment, fail with their own error."""
    code = """
        import threading
        done, main, found = threading.Event(), threading.get_ident(), set()
        def fail():
            while not done.is_set():
                try:
                    port._port.write(np.zeros(1, "u1"))
                except BaseException as e:
                    found.add(type(e).__name__)
        def hold_the_interpreter():
            while not done.is_set():
                sum(range(1_000_000))
        def tell():
            while sys._current_frames()[main].f_code.co_name != "write":
                pass
            say("blocks")
        port = polyduct.open(sys.argv[1], "w", shape=1, dtype="i4", layout="*", depth=1)
        port.write([0])
        threads = [threading.Thread(target=t) for t in [fail] * 4 + [hold_the_interpreter] * 2]
        for t in threads: t.start()
        for _ in range(10):
            threads.append(threading.Thread(target=tell))
            threads[-1].start()
            try:
                port.write([1])
            except BaseException as e:
                say(type(e).__name__)
        done.set()
        for t in threads: t.join()
        say(*found)
    """
    one = start(code, pipe)
    port = polyduct.open(pipe, layout="*", timeout=30)
    for _ in range(10):
        assert one.hear() == "blocks"
        one.signal(signal.SIGINT)
        assert one.hear() == "KeyboardInterrupt"
    assert one.hear() == "WrongSize"
    assert one.end()[0] == 0
    port.close()


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


def test_a_handler_of_a_signal_cannot_use_the_port_that_it_interrupts(pipe: str, start: Start) -> None:
    """It would wait for the very call that waits for it."""
    code = """
        import signal
        port, seen = None, 0
        def tick(_, frame):
            # The third time in the same call it is past everything that precedes the wait.
            global seen
            seen = seen + 1 if frame.f_code.co_filename.endswith(("_reader.py", "_writer.py")) else 0
            if seen < 3:
                return
            signal.setitimer(signal.ITIMER_REAL, 0)
            try:
                port.abort()
            except polyduct.Misuse as e:
                say("misuse", "signal handler" in str(e))
            raise LookupError("enough")
        signal.signal(signal.SIGALRM, tick)
        port = polyduct.open(sys.argv[1], layout="*")
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
            port.read()
        except LookupError:
            port.abort()
            say("aborted", port.closed)
    """
    one = start(code, pipe)
    out = polyduct.open(pipe, "w", shape=(4,), dtype="f4", layout="*")
    assert (one.hear(), one.hear()) == ("misuse True", "aborted True")
    with pytest.raises(polyduct.ReadersGone):
        for _ in range(9):
            out.write([0.0] * 4)


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
        ("sys.exit()", "main()", True),
        ("raise SystemExit", "main()", True),
        ("sys.exit(3)", "main()", False),
        ("globals()['keep'] = out; sys.exit(3)", "main()", False),
        ("sys.exit('no good')", "main()", False),
        ("globals()['keep'] = out; raise SystemExit(3)", "main()", False),
        ("raise SystemExit(3)", "main()", False),
        ("a = out.step().__enter__(); raise SystemExit(3)", "main()", False),
        ("sys.exit(3)", "import threading; t = threading.Thread(target=main); t.start(); t.join()", True),
        ("1 / 0", "main()", False),
        ("globals()['keep'] = out; 1 / 0", "main()", False),
        ("globals()['keep'] = out; raise KeyboardInterrupt", "main()", False),
        ("out.step().__enter__(); globals()['keep'] = out", "main()", True),
        ("import os; os._exit(0)", "main()", None),
    ],
    ids=[
        "kept",
        "dropped",
        "exit",
        "exit-none",
        "exit-none-raised",
        "exit-3",
        "exit-3-kept",
        "exit-text",
        "exit-3-raised-kept",
        "exit-3-raised",
        "exit-3-open-step",
        "exit-3-of-a-thread",
        "raised",
        "raised-kept",
        "interrupt",
        "open-step",
        "no-goodbye",
    ],
)
def test_the_end_of_the_interpreter(
    pipe: str, start: Start, end: str, call: str, complete: bool | None
) -> None:
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


@pytest.mark.parametrize("way", ["script", "module", "run_path"])
@pytest.mark.parametrize("status", [0, 3])
def test_the_status_of_a_program_ends_its_ports(pipe: str, tmp_path: Path, way: str, status: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"""
import sys, polyduct
def main():
    source = polyduct.open(sys.argv[1], layout="*,*")
    out = polyduct.open(sys.argv[2], "w", shape=(1, 3), dtype="i4", layout="*,*")
    for a in source:
        out.write(a)
    raise SystemExit({status})
if __name__ == "__main__":
    main()
""")
    run = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    how = {"script": [program], "module": ["-m", "program"], "run_path": ["-c", run, program]}[way]
    pipes = [f"{pipe}-in", f"{pipe}-out"]
    one = subprocess.Popen([sys.executable, *map(str, how), *pipes], cwd=tmp_path)
    with polyduct.open(pipes[0], "w", shape=(1, 3), dtype="i4", layout="*,*", timeout=30) as out:
        port = reader(pipes[1])
        out.write([[1, 2, 3]])
        assert next(port).tolist() == [[1, 2, 3]]
    if status == 0:
        assert list(port) == []
    else:
        with pytest.raises(polyduct.PeerAborted):
            port.read()
    assert one.wait(timeout=60) == status


@pytest.mark.parametrize(
    ("end", "status"), [("", 0), ("sys.exit(0)", 0), ("sys.exit(3)", 3), ("sys.exit('no good')", 1)]
)
def test_a_file_appears_only_after_a_good_end(tmp_path: Path, start: Start, end: str, status: int) -> None:
    """Both units are of one process: neither can close before the other does."""
    path = tmp_path / "a.npy"
    code = f"""
        import threading
        def begin(unit):
            ports[unit] = polyduct.open(sys.argv[1], "w", shape=(2, 3), dtype="i4", layout="block,*", unit=unit, units=2, program="w")
        ports = {{}}
        threads = [threading.Thread(target=begin, args=(unit,)) for unit in range(2)]
        for t in threads: t.start()
        for t in threads: t.join()
        for unit in range(2):
            ports[unit].write([[1, 2, 3]])
        {end}
    """
    one = start(code, path)
    assert one.end()[0] == status
    assert path.exists() == (status == 0) and not (set(tmp_path.iterdir()) - {path})


def test_what_closing_at_the_end_meets(tmp_path: Path, start: Start) -> None:
    code = """
        import os
        out = polyduct.open(sys.argv[1], "w", shape=3, dtype="i4", layout="*")
        out.write([1, 2, 3])
        os.mkdir(sys.argv[1])
    """
    status, _, complaints = start(code, tmp_path / "a.npy").end()
    assert status == 120 and "polyduct: when closing at exit: " in complaints and "a.npy" in complaints


@pytest.mark.parametrize("how", ["plain", "multiprocessing"])
def test_a_file_that_cannot_be_completed_at_the_end_is_a_failure(tmp_path: Path, how: str) -> None:
    """One unit of three writes a step more than the others, and nobody closes."""
    program = tmp_path / "program.py"
    name = f"polyduct-test/{os.getpid()}/{how}"
    program.write_text(f"""
import multiprocessing, os, socket, sys, polyduct

def write():
    global out
    out = polyduct.open("-", "w", shape=(3, 3), dtype="i4", layout="block,*")
    for step in range(2 + (out.unit == 1)):
        out.write([[step] * 3])
    print("written", flush=True)
    with socket.socket(socket.AF_UNIX) as all_written:
        all_written.connect("\\0" + {name!r})
        all_written.recv(1)

if __name__ == "__main__":
    if {how!r} == "plain":
        write()
    else:
        child = multiprocessing.get_context("fork").Process(target=write)
        child.start()
        child.join()
        sys.exit(child.exitcode)
""")
    target = tmp_path / "a.npy"
    target.write_text("old")
    run = [COMMAND, "run", f"-n 3 {sys.executable} {program} > {target}"]
    with socket.socket(socket.AF_UNIX) as all_written:
        all_written.bind("\0" + name)
        all_written.listen(3)
        all_written.settimeout(60)
        done = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # Who is late would learn it by writing. All hang up at once.
        units = [all_written.accept()[0] for _ in range(3)]
        [unit.close() for unit in units]
    stdout, stderr = done.communicate(timeout=60)
    assert done.returncode == 120, stderr
    assert "when closing at exit" in stderr and "exited with status 120" in stderr
    # The first that fails ends the others, perhaps before they have said it.
    assert "written" in stdout and target.read_text() == "old"


def test_readers_that_have_gone_are_no_failure_of_the_end(pipe: str, start: Start) -> None:
    code = """
        out = polyduct.open(sys.argv[1], "w", shape=1, dtype="i4", layout="*")
        try:
            while True:
                out.write([1])
        except polyduct.ReadersGone:
            say("gone")
    """
    one = start(code, pipe)
    with polyduct.open(pipe, layout="*", timeout=30) as port:
        port.read()
    assert one.end() == (0, "gone\n", "")


def test_a_fork_does_not_take_a_failure_from_its_parent(tmp_path: Path, start: Start) -> None:
    """The port of the parent cannot be closed well; the child that has a copy of it ends well all the
    same."""
    code = """
        import os
        out = polyduct.open(sys.argv[1], "w", shape=3, dtype="i4", layout="*")
        out.write([1, 2, 3])
        os.mkdir(sys.argv[1])
        child = os.fork()
        if child == 0:
            sys.exit(0)
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    status, out, complaints = start(code, tmp_path / "a.npy").end()
    assert (status, out, complaints.count("when closing at exit")) == (120, "0\n", 1), complaints


# What multiprocessing catches, and the status that it gives the child.
ENDS = {
    "return": 0,
    "sys.exit(0)": 0,
    "sys.exit(3)": 3,
    "sys.exit('no good')": 1,
    "raise SystemExit(3)": 3,
    "raise SystemError('no good')": 1,
    "with out: raise SystemError('no good')": 1,
    "import os; os._exit(0)": None,
}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("keep", [False, True], ids=["local", "kept"])
def test_a_child_of_multiprocessing(
    pipe: str, start: Start, method: str, end: str, keep: bool, tmp_path: Path
) -> None:
    status = ENDS[end]
    program = tmp_path / "program.py"
    program.write_text(f"""
import multiprocessing, sys, polyduct

def child(url):
    out = polyduct.open(url, "w", shape=(1, 3), dtype="i4", layout="*,*")
    if {keep}:
        globals()["kept"] = out
    out.write([[1, 2, 3]])
    {end}

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
    if status == 0:
        assert list(port) == []
    else:
        with pytest.raises(polyduct.PeerLost if status is None else polyduct.PeerAborted):
            port.read()
    assert one.end()[1] == f"{status or 0}\n"


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


LIMITS = """
    import os, resource

    def attempt(which, limit):
        before = resource.getrlimit(which)
        resource.setrlimit(which, (limit, before[1]))
        try:
            polyduct.open(sys.argv[1], "w", shape=1 << 24, dtype="u1", layout="block", timeout=30)
        except polyduct.Error as e:
            return f"{type(e).__name__} {isinstance(e, (MemoryError, OSError))} {e}"
        finally:
            resource.setrlimit(which, before)

    for which, limit in (
        (resource.RLIMIT_FSIZE, 1 << 20),
        (resource.RLIMIT_AS, 1 << 20),
        (resource.RLIMIT_NOFILE, len(os.listdir("/proc/self/fd"))),
    ):
        say(attempt(which, limit))
    out = polyduct.open(sys.argv[1], "w", shape=1 << 24, dtype="u1", layout="block", timeout=30)
    out.write(np.ones(1 << 24, "u1"))
    out.close()
    say("done")
"""


def test_limits_of_the_process_are_errors_and_the_next_pipe_opens(pipe: str, start: Start) -> None:
    writer = start(LIMITS, pipe)
    name = pipe.removeprefix("pipe:")
    for words in (
        ("NoMemory", "RLIMIT_FSIZE", "1048576 available"),
        ("NoMemory", "33554432 bytes"),
        ("file descriptors",),
    ):
        said = writer.hear()
        assert " True " in said and name in said and all(word in said for word in words), said
    with polyduct.open(pipe, layout="*", timeout=30) as port:
        assert next(port).all()
        assert port.read() is None
    assert writer.hear() == "done"


@pytest.fixture(params=["one host", "hosts"])
def anywhere(request: pytest.FixtureRequest, pipe: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A pipe on one host, and one of the kind that goes across hosts."""
    if request.param == "one host":
        return pipe
    monkeypatch.setenv("POLYDUCT_JOB_KEY", "7e" * 32)
    pid = os.getpid()
    # Every process has an address of this host to itself.
    return f"pipe://127.{1 + (pid >> 16) % 200}.{pid >> 8 & 255}.{pid & 255}:7900/again"


def test_a_timeout_names_who_has_not_been_replaced(anywhere: str, start: Start) -> None:
    pipe = anywhere
    code = """
        url, unit = sys.argv[1], int(sys.argv[2])
        out = polyduct.open(url, "w", shape=2, dtype="i4", layout="block", unit=unit, units=2, program="w", on_loss="wait")
        out.write([unit])
        say("step")
        wait()
    """
    one, lost = start(code, pipe, 0), start(code, pipe, 1)
    port = polyduct.open(pipe, layout="*", timeout=4)
    assert (one.hear(), lost.hear()) == ("step", "step")
    assert next(port).tolist() == [0, 1]
    lost.signal(signal.SIGKILL)
    lost.process.wait()
    with pytest.raises(
        TimeoutError,
        match=rf"step 1; writer unit 1 \(pid {lost.process.pid}\) is lost, and nothing has taken",
    ):
        next(port)
    one.signal(signal.SIGKILL)


def test_a_replacement_goes_on(anywhere: str, start: Start) -> None:
    pipe = anywhere
    code = """
        url, unit = sys.argv[1], int(sys.argv[2])
        out = polyduct.open(url, "w", shape=2, dtype="i4", layout="block", unit=unit, units=2, program="w", on_loss="wait")
        while out.next_step < 4:
            k = out.next_step
            out.write([10 * k + unit])
            say(k)
            wait()
        out.close()
    """
    one, lost = start(code, pipe, 0), start(code, pipe, 1)
    port = polyduct.open(pipe, layout="*", timeout=30)
    assert (one.hear(), lost.hear()) == ("0", "0")
    assert next(port).tolist() == [0, 1]
    lost.signal(signal.SIGKILL)
    lost.process.wait()
    one.tell()
    assert one.hear() == "1"
    new = start(code, pipe, 1)
    assert new.hear() == "1"
    assert next(port).tolist() == [10, 11]
    for k in (2, 3):
        one.tell(), new.tell()
        assert (one.hear(), new.hear()) == (str(k), str(k))
        assert next(port).tolist() == [10 * k, 10 * k + 1]
    one.tell(), new.tell()
    assert list(port) == []


@pytest.mark.parametrize("end", ["kill", "exception"])
def test_a_reader_is_replaced(anywhere: str, start: Start, end: str) -> None:
    code = """
        port = polyduct.open(sys.argv[1], layout="block", unit=int(sys.argv[2]), units=2, program="r", on_loss="wait")
        for part in port:
            say(port.number, *part)
            if wait().strip() == "raise": raise RuntimeError("enough")
    """
    one, lost = start(code, anywhere, 0), start(code, anywhere, 1)
    out = polyduct.open(anywhere, "w", shape=2, dtype="i4", layout="*", depth=2, timeout=30)
    out.write([0, 1])
    out.write([10, 11])
    assert (one.hear(), lost.hear()) == ("0 0", "0 1")
    one.tell()
    assert one.hear() == "1 10"
    if end == "kill":
        lost.signal(signal.SIGKILL)
        lost.process.wait()
    else:
        assert lost.process.stdin is not None
        lost.process.stdin.write("raise\n")
        lost.process.stdin.flush()
        assert lost.end()[0] == 1
    new = start(code, anywhere, 1)
    # Whether the lost unit came to say that it has step 0 does not matter to the next.
    assert new.hear() == "1 11"
    out.write([20, 21])
    one.tell(), new.tell()
    assert (one.hear(), new.hear()) == ("2 20", "2 21")
    one.tell(), new.tell()
    out.close()
    assert one.end()[0] == 0 and new.end()[0] == 0


def test_who_comes_when_descriptors_are_out_is_refused_and_the_others_go_on(pipe: str, start: Start) -> None:
    """The writer's process listens for replacements, and has no descriptor left to hear one with."""
    unit_0 = """
        import os, resource
        out = polyduct.open(sys.argv[1], "w", shape=2, dtype="i4", layout="*", on_loss="wait", depth=1)
        out.write([0, 1])
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The next descriptor would be the lowest that is free.
        free = os.dup(0); os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        say("out of descriptors"); wait()
        for k in range(1, 4): out.write([k, k + 1])
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        out.close()
    """
    peer = """
        port = polyduct.open(sys.argv[1], layout="*", on_loss="wait")
        say(*port.read().tolist()); wait()
        for step in port: say(*step.tolist())
    """
    late = """
        try: polyduct.open(sys.argv[1], layout="*", program="late", on_loss="wait", timeout=0.5)
        except polyduct.Refused as e: say(e.reason, e)
    """
    writer, reader = start(unit_0, pipe), start(peer, pipe)
    assert writer.hear() == "out of descriptors" and reader.hear() == "0 1"
    newcomer = start(late, pipe)
    heard = newcomer.hear()
    assert heard.startswith("system") and "accept" in heard and newcomer.end()[0] == 0
    writer.tell()
    reader.tell()
    assert [reader.hear() for _ in range(3)] == ["1 2", "2 3", "3 4"]
    assert reader.end()[0] == 0 and writer.end()[0] == 0
