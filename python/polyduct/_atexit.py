"""What becomes of open ports when the interpreter ends.

They are closed, as files are; but aborted when an exception that nobody caught ends the program: what was written then is
no complete stream, and the others must not take it for one. ``sys.exit`` is a normal end.

A child of multiprocessing that fails is noticed up to Python 3.12. Since 3.13 it tells nobody before its ports are gone:
there, as wherever an exception is caught by somebody else, ``with`` says what is meant.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from typing import TYPE_CHECKING, Any

from polyduct import _native
from polyduct.errors import Error

if TYPE_CHECKING:
    from polyduct._ports import _Port

_open: weakref.WeakSet[Any] = weakref.WeakSet()
_in_multiprocessing = False


def watch(port: _Port) -> None:
    """Has the port closed or aborted at the end of the interpreter."""
    global _in_multiprocessing
    _open.add(port)
    if not _in_multiprocessing and "multiprocessing.process" in sys.modules:
        # A child of multiprocessing ends without atexit, after its own finalizers.
        from multiprocessing import process, util

        if process.parent_process() is not None:
            _in_multiprocessing = True
            util.Finalize(None, end_all, exitpriority=0)


def _failed() -> bool:
    """Whether an exception that nobody caught ends the interpreter."""
    # Finalizers of multiprocessing run while the exception is on its way up.
    on_its_way = sys.exc_info()[1]
    if on_its_way is not None:
        return not isinstance(on_its_way, SystemExit)
    # The interpreter notes here what it is about to report. An interactive session does so for each mistake.
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return False
    return getattr(sys, "last_exc", None) is not None or getattr(sys, "last_value", None) is not None


@atexit.register
def end_all() -> None:
    """Ends every port that is still open."""
    ports = [port for port in _open if not port.closed]
    if _failed():
        for port in ports:
            _attempt(port.abort)
        return
    # Writers close at once, because completing a file waits for the other units, and they may be of this process.
    writers = [port for port in ports if isinstance(port._port, _native.WritePort)]
    for error in _native.close_all([port._port for port in writers]):
        if error is not None:
            _report(error)
    for port in writers:
        port._closed = True
    for port in ports:
        _attempt(port.close)


def _attempt(end: Any) -> None:
    try:
        end()
    except Error as e:
        _report(e)


def _report(error: BaseException) -> None:
    print(f"polyduct: when closing at exit: {type(error).__name__}: {error}", file=sys.stderr)
