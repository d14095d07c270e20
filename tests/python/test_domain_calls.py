"""Handlers and calls between units in threads of one process: who answers, in which thread, and what ends
them."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import together
from domains import alone, units

import polyduct
from polyduct import Domain


def test_handlers() -> None:
    def run(d: Domain) -> None:
        got: list[Any] = []

        @d.handler("note")
        def note(from_: int, args: tuple[int, int, int, int], payload: bytes) -> None:
            got.append((from_, args, payload))

        assert note(1, (0, 0, 0, 0), b"") is None and got.pop()
        echo = d.handler("echo", lambda from_, args, payload: d.post(from_, "note", *args, payload=payload))
        assert callable(echo)
        with pytest.raises(polyduct.UnknownHandler) as unknown:
            d.post(0, "note")
        assert unknown.value.name == "note" and unknown.value.unit is None
        with pytest.raises(polyduct.DuplicateHandler, match="note"):
            d.handler("note", note)
        for bad in ("", "a\nb", "x" * 129):
            with pytest.raises(polyduct.HandlerError):
                d.handler(bad, note)
        with pytest.raises(polyduct.WrongType, match="int is no function"):
            d.handler("number", 3)  # type: ignore[call-overload]
        if d.unit == 1:
            d.handler("only in 1", note)
        d.synchronise()
        for to in range(d.units):
            d.post(to, "echo", 1, 2**32 - 1, payload=np.arange(3, dtype="u1"))
        d.post(d.unit, "note", 9)
        assert (d.unit, (9, 0, 0, 0), b"") in got
        assert d.serve(lambda: len(got) == d.units + 1, timeout=30)
        assert {(u, (1, 2**32 - 1, 0, 0), b"\0\1\2") for u in range(d.units)} <= set(got)
        if d.unit != 1:
            with pytest.raises(polyduct.UnknownHandler) as there:
                d.post(0, "only in 1")
            assert there.value.unit == 0
        with pytest.raises(polyduct.Misuse, match="four"):
            d.post(0, "note", 1, 2, 3, 4, 5)
        d.barrier()

    units(3, run)


def test_versions_that_disagree_are_told_to_all() -> None:
    def run(d: Domain) -> polyduct.HandlerVersions:
        d.handler("f", lambda *_: None, version=7 if d.unit == 2 else 1)
        with pytest.raises(polyduct.HandlerVersions) as e:
            d.synchronise()
        return e.value

    for e in units(3, run):
        assert (e.name, e.first, e.first_unit, e.second, e.second_unit) == ("f", 1, 0, 7, 2)


def test_a_handler_sends_but_does_not_wait() -> None:
    def run(d: Domain) -> None:
        refused: list[type] = []

        def ask(from_: int, args: Any, payload: bytes) -> None:
            for wait in (
                d.barrier,
                partial(d.recv, tag=9),
                d.synchronise,
                d.status,
                lambda: d.call(from_, "one").result(),
            ):
                try:
                    wait()
                except polyduct.InHandler as e:
                    assert "it may send, post and call" in str(e)
                    refused.append(type(e))
            d.send(from_, np.arange(args[0]))

        d.handler("ask", ask)
        d.function("one", lambda _: np.int32(1))
        d.synchronise()
        other = 1 - d.unit
        for n in (0, 10, 600_000):
            d.post(other, "ask", n)
        for n in (0, 10, 600_000):
            assert np.array_equal(d.recv(other), np.arange(n))
        d.barrier()
        assert len(refused) == 15

    units(2, run)


def test_what_a_handler_raises_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda e: seen.append((e.exc_type, str(e.exc_value))))

    def run(d: Domain) -> None:
        def fail(*_: object) -> None:
            raise ValueError("not today")

        d.handler("fail", fail)
        d.synchronise()
        d.post((d.unit + 1) % 2, "fail")
        d.barrier()
        d.send(1 - d.unit, b"goes on")
        assert d.recv() == b"goes on"

    units(2, run)
    assert seen == [(ValueError, "not today")] * 2


def test_calls_from_many_threads() -> None:
    def run(d: Domain) -> None:
        @d.function("square")
        def square(x: Any) -> Any:
            if not isinstance(x, np.ndarray):
                raise ValueError(f"{x!r} is no array")
            return x * x

        d.function("nothing", lambda _: None)
        d.function("wrong", lambda _: [1])
        d.function("echo", lambda x: x)
        d.synchronise()

        def calls(k: int) -> None:
            for n in range(40):
                x = np.array([[k, n]], "i8")
                assert np.array_equal(d.call((k + n) % 3, "square", x).result(), x * x)

        together(*[partial(calls, k) for k in range(4)])
        for to in range(3):
            with pytest.raises(polyduct.CallFailed) as failed:
                d.call(to, "square", b"x").result()
            assert (failed.value.unit, failed.value.name) == (to, "square")
            assert failed.value.error == "ValueError: b'x' is no array"
            assert d.call(to, "nothing").result() == b""
            with pytest.raises(polyduct.CallFailed, match="WrongType: a list cannot be sent"):
                d.call(to, "wrong").result()
            long = np.asfortranarray(np.random.default_rng(to).random((300, 700)))
            call = d.call(to, "echo", long)
            for _ in range(2):  # the result stays
                assert np.array_equal(call.result(), long)
            assert call.done() and not call.cancel()
        with pytest.raises(polyduct.UnknownHandler):
            d.call(0, "cube")
        with pytest.raises(polyduct.NoUnit):
            d.call(3, "square")
        del call
        d.barrier()
        status = d.status()
        assert status[:4] == (0, 0, 0, 0)
        # Nothing holds room, and every partner takes more.
        assert status.mail_bytes == status.other_bytes == 0 < min(status.sends_high, status.sends_low)

    units(3, run)


def test_two_threads_wait_for_one_call() -> None:
    def run(d: Domain) -> None:
        d.function("f", lambda _: b"yes")
        d.synchronise()
        if d.unit == 0:
            call = d.call(1, "f")
            assert together(call.result, call.result, lambda: call.result(20)) == [b"yes"] * 3
        d.barrier()

    units(2, run)


def ask_until_done(call: polyduct.Call) -> None:
    while not call.done():
        pass


@pytest.mark.parametrize("ask", [ask_until_done, polyduct.Call.result, polyduct.Call.cancel])
def test_a_handler_asks_for_the_call_that_is_just_asked_for(ask: Callable[[polyduct.Call], object]) -> None:
    called, posted, handled = threading.Event(), threading.Event(), threading.Event()

    def run(d: Domain) -> None:
        calls: list[polyduct.Call] = []

        @d.handler("ask")
        def asks(*_: object) -> None:
            calls[0].done()
            handled.set()

        d.function("f", lambda _: b"yes")
        d.synchronise()
        if d.unit == 0:
            calls.append(d.call(1, "f"))
            called.set()
            assert posted.wait(30)
            ask(calls[0])
            assert handled.is_set() and calls[0].done()
        else:
            assert called.wait(30)
            d.post(0, "ask")
            posted.set()
            # Answers only then.
            assert handled.wait(30)
        d.barrier()

    units(2, run)


def test_calls_end_by_deadline_cancellation_and_departure() -> None:
    deaf, told = threading.Event(), threading.Event()

    def run(d: Domain) -> None:
        d.function("later", lambda _: b"")
        d.synchronise()
        if d.unit == 1:
            # From here on it receives nothing before it is told, so it answers nothing.
            deaf.set()
            told.wait(10)
            return
        deaf.wait()
        late = d.call(1, "later", timeout=0.03)
        with pytest.raises(polyduct.CallDeadline) as deadline:
            late.result()
        assert deadline.value.waited >= 0.03 and isinstance(deadline.value, TimeoutError)
        given_up = d.call(1, "later")
        assert not given_up.done()
        with pytest.raises(polyduct.TimeoutError) as timeout:
            given_up.result(timeout=0.03)
        assert timeout.value.waited >= 0.03
        assert given_up.cancel() and given_up.done() and given_up.cancel()
        with pytest.raises(polyduct.CallCancelled):
            given_up.result()
        for bad in (-1.0, float("nan"), 1e99):
            with pytest.raises(polyduct.BadOption):
                d.call(1, "later", timeout=bad)
        unanswered = d.call(1, "later")
        told.set()
        with pytest.raises(polyduct.CallPeerGone):
            unanswered.result()

    units(2, run)


def test_answers_while_the_main_thread_computes() -> None:
    done = threading.Event()

    def run(d: Domain) -> None:
        d.function("double", lambda x: 2 * x)
        d.synchronise()
        if d.unit == 0:
            assert d.call(1, "double", np.arange(4)).result().tolist() == [0, 2, 4, 6]
            done.set()
            return
        with d.serving():
            # Not in any call of the domain.
            assert done.wait(30)
        again = d.serving()
        again.stop()
        d.serving()  # ends with the domain

    before = threading.active_count()
    units(2, run)
    assert threading.active_count() == before


def test_each_serving_ends_for_itself() -> None:
    ended, done = threading.Event(), threading.Event()

    def run(d: Domain) -> None:
        d.function("double", lambda x: 2 * x)
        d.synchronise()
        if d.unit == 0:
            assert ended.wait(30)
            assert d.call(1, "double", np.arange(4), timeout=20).result().tolist() == [0, 2, 4, 6]
            done.set()
            return
        with d.serving():
            with d.serving():
                pass
            ended.set()
            # Not in any call of the domain.
            assert done.wait(30)

    units(2, run)


def test_a_serving_that_begins_keeps_no_other_from_its_end() -> None:
    begun, ended = threading.Event(), threading.Event()

    def run(d: Domain) -> None:
        @d.handler("another")
        def another(*_: object) -> None:
            # In the thread that is to end, which looks only after this.
            one.stop()
            d.serving()
            ended.set()

        d.synchronise()
        if d.unit == 0:
            assert begun.wait(30)
            d.post(1, "another")
            assert ended.wait(30)
            return
        one = d.serving()
        begun.set()
        assert ended.wait(30)
        one._thread.join(10)
        assert not one._thread.is_alive()

    units(2, run)


def test_serve_ends_in_time() -> None:
    d = alone()
    assert not d.serve(lambda: False, timeout=0)
    assert not d.serve(lambda: False, timeout=0.01)
    assert d.serve(lambda: True, timeout=0)
    assert d.poll() == 0
    d.leave()


def test_a_function_gets_no_messages() -> None:
    def run(d: Domain) -> None:
        d.function("f", lambda x: x)
        d.synchronise()
        with pytest.raises(polyduct.errors.HandlerError, match="call it"):
            d.post(1 - d.unit, "f")
        d.barrier()

    units(2, run)


def test_a_call_that_fails_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(d: Domain) -> None:
        @d.function("fail")
        def fail(_: object) -> None:
            raise ValueError("line one\n\nline three")

        d.synchronise()
        if d.unit == 0:
            with pytest.raises(polyduct.CallFailed, match="ValueError: line one") as e:
                d.call(1, "fail").result()
            assert "in fail" in e.value.traceback and "Traceback" in e.value.traceback
            if hasattr(e.value, "__notes__"):
                assert "in fail" in e.value.__notes__[0]
            again = pickle.loads(pickle.dumps(e.value))
            assert (again.traceback, again.error) == (e.value.traceback, e.value.error)
        d.barrier()

    units(2, run)


def test_a_handler_that_would_end_the_program_ends_no_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda e: seen.append((e.exc_type, str(e.exc_value))))
    serving, done = threading.Event(), threading.Event()

    def run(d: Domain) -> None:
        @d.handler("quit")
        def quit(*_: object) -> None:
            raise SystemExit("enough")

        @d.function("fail")
        def fail(_: object) -> None:
            raise SystemExit("enough")

        d.function("double", lambda x: 2 * x)
        d.synchronise()
        if d.unit == 0:
            # Before, they would run in the other unit's `synchronise`, which they may end.
            assert serving.wait(30)
            d.post(1, "quit")
            with pytest.raises(polyduct.CallFailed, match="SystemExit: enough"):
                d.call(1, "fail", timeout=20).result()
            assert d.call(1, "double", np.arange(3), timeout=20).result().tolist() == [0, 2, 4]
            done.set()
            return
        with d.serving():
            serving.set()
            # Not in any call of the domain.
            assert done.wait(30)

    units(2, run)
    assert (SystemExit, "enough") in seen
