"""Running a coroutine so that a signal ends it in order."""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` for commands: a signal cancels the coroutine, and the signal's handler is called when it has ended.

    Otherwise a handler that raises, as those of `errors.handle_sigterm` and Ctrl-C do, raises in whatever task is at
    work: this one fails with the exception, and the others print tracebacks. A second Ctrl-C does not wait.
    """
    if threading.current_thread() is not threading.main_thread():
        # Signals arrive in the main thread alone.
        return asyncio.run(main)
    if _is_in_a_loop():
        return _beside(main)
    task: asyncio.Task[T] | None = None
    arrived: list[int] = []
    # What is ignored, or ends the process at once, still does.
    before = {number: handler for number in SIGNALS if callable(handler := signal.getsignal(number))}

    def cancel(number: int, frame: FrameType | None) -> None:
        if task is None or (arrived and number == signal.SIGINT):
            before[signal.Signals(number)](number, frame)
        elif not arrived:
            task.get_loop().call_soon_threadsafe(task.cancel)
        arrived.append(number)

    async def known() -> T:
        nonlocal task
        task = asyncio.current_task()
        return await main

    cancelled: asyncio.CancelledError | None = None
    try:
        for number in before:
            signal.signal(number, cancel)
        result = asyncio.run(known())
    except asyncio.CancelledError as error:
        cancelled = error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if arrived:
        before[signal.Signals(arrived[0])](arrived[0], None)
    if cancelled:
        raise cancelled
    return result


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _beside(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread of its own: in a notebook this one's loop is at work. Ctrl-C there cancels it."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(main)

    def work() -> T:
        try:
            return loop.run_until_complete(task)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(task.cancel)
            raise
