"""A signal ends a coroutine in order: once, in one task, with nothing printed."""

import asyncio
import gc
import os
import signal
import threading

import pytest

from notewriter.ground.errors import Terminated
from notewriter.ground.event_loop import run_async


@pytest.fixture
def ends():
    """The handlers of commands: a signal raises."""

    def end(number, frame):
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("ends")
@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)], ids=["SIGTERM", "SIGINT"]
)
def test_a_signal_cancels_all_tasks_and_then_ends_the_command(number, kind, caplog):
    tidied = []

    async def call(index):
        try:
            await asyncio.sleep(0.001 * index)
            os.kill(os.getpid(), number)
            # The task at work when it arrives goes on to its next wait.
            tidied.append("kept")
            await asyncio.sleep(60)
        finally:
            tidied.append(index)

    async def main():
        async with asyncio.TaskGroup() as calls:
            for index in range(50):
                calls.create_task(call(index))

    with pytest.raises(kind):
        run_async(main())
    gc.collect()
    assert {index for index in tidied if index != "kept"} == set(range(50)) and "kept" in tidied
    assert caplog.text == ""
    # From now on the handler is that of before.
    with pytest.raises(kind):
        os.kill(os.getpid(), number)


@pytest.mark.usefixtures("ends")
def test_a_second_interrupt_does_not_wait():
    async def stubborn():
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        run_async(stubborn())


@pytest.mark.usefixtures("ends")
def test_a_run_that_ends_while_the_signal_arrives_is_ended_too():
    async def last():
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Terminated):
        run_async(last())


def test_a_coroutine_that_cancels_itself_is_no_signal():
    async def cancelled():
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_async(cancelled())


def test_an_ignored_signal_stays_ignored():
    """A shell has its background jobs ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:

        async def told():
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0)
            return "finished"

        assert run_async(told()) == "finished"
    finally:
        signal.signal(signal.SIGINT, before)


def test_it_runs_outside_the_main_thread_too():
    results = []

    async def main():
        return 1

    thread = threading.Thread(target=lambda: results.append(run_async(main())))
    thread.start()
    thread.join()
    assert results == [1]


def test_in_a_notebook_whose_loop_is_at_work_a_coroutine_runs_beside_it():
    async def two():
        await asyncio.sleep(0)
        return 2

    async def cell():
        return run_async(two())

    assert asyncio.run(cell()) == 2


def test_its_errors_are_those_of_the_cell():
    async def failing():
        raise ValueError("so")

    async def cell():
        run_async(failing())

    with pytest.raises(ValueError, match="so"):
        asyncio.run(cell())
