"""What becomes of open ports and domains when the program ends.

They are closed, as files are, where it ends well: with the exit status 0. Every other end aborts them: an
exception that nobody caught, ``sys.exit("text")``, ``sys.exit(3)``, ``raise SystemExit(3)``, also under
``python -m`` and in a child of multiprocessing. What was written then is no complete stream, and the others
must not take it for one.

The exit status is asked, since nothing else is left of a ``SystemExit`` when the interpreter ends: ports that
are open then are left to the C library, which tells the status (``crates/python/src/exit.rs``). A child of
multiprocessing ends by ``os._exit`` instead, and is watched there.

Where closing fails the process says why and ends with the status 120 instead of 0: what it was to write is
not there.

Not covered, so that only ``with`` says what is meant:

* an exception that somebody catches, although it was to end the work: in a thread (where ``SystemExit`` ends but the
  thread), a pool's worker, a notebook, a framework that turns exceptions into its own. A port that only the function held
  is closed when the exception is dropped;
* ``os._exit`` called by the program: the others get `PeerLost`, after a complete stream too;
* a program that ends its embedded interpreter and runs on: the ports stay open until the process ends.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from polyduct import _native
from polyduct.errors import Error

if TYPE_CHECKING:
    from polyduct._domain import Domain
    from polyduct._port import _Port

_open: weakref.WeakSet[Any] = weakref.WeakSet()
_in_multiprocessing = False
_exit = os._exit


def watch(port: _Port | Domain) -> None:
    """Has the port or domain closed or aborted at the end of the program."""
    global _in_multiprocessing
    _open.add(port)
    if not _in_multiprocessing and "multiprocessing.process" in sys.modules:
        from multiprocessing import process

        if process.parent_process() is not None:
            _in_multiprocessing = True
            os._exit = _exit_of_child


def _exit_of_child(status: int) -> NoReturn:
    """Ends the ports where multiprocessing ends its child; elsewhere it is what it replaces."""
    if sys._getframe(1).f_globals.get("__name__", "").startswith("multiprocessing."):
        leave_all()
        status = _native.end_left(status)
    _exit(status)


def _dies_of_ctrl_c() -> bool:
    """Whether a KeyboardInterrupt that nobody caught ends the program: it has no exit status, it kills
    itself."""
    # An interactive session notes each mistake here, and goes on.
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return False
    last = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return isinstance(last, KeyboardInterrupt)


# A fork has copies of its parent's ports, and they are not its to end.
os.register_at_fork(after_in_child=_open.clear)


@atexit.register
def leave_all() -> None:
    """Leaves every port that is still open to the end of the process."""
    aborted = _dies_of_ctrl_c()
    for port in [port for port in _open if not port.closed]:
        port._stop_serving()
        port._closed = True
        try:
            if aborted:
                port._port.abort()
            else:
                port._port.leave()
        except Error as e:
            print(f"polyduct: when closing at exit: {type(e).__name__}: {e}", file=sys.stderr)
