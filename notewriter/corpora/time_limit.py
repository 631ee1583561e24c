"""A limit on the time that one document may take."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from notewriter.ground.errors import UserError

MAX_SECONDS = 300.0
"""Time to read a file, and again to split it; some damaged PDF files keep the parser busy for hours."""


class _TooSlow(BaseException):
    """Not an `Exception`, which parsers catch and go on."""


@contextmanager
def time_limit(name: str) -> Iterator[None]:
    """End the block after `MAX_SECONDS`; outside the main thread, where signals cannot, never.

    Raises:
        UserError: it took longer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    # Again each second: the first may arrive in a destructor, whose exceptions Python ignores.
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS, 1)
    try:
        yield
    except _TooSlow as error:
        raise UserError(f"{name}: takes more than {MAX_SECONDS:g} seconds; split it or convert it to text") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
