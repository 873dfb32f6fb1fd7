"""./dev up: ports, stops, kills, neighbours."""

import re
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from subprocess import Popen

import pytest

from tests.infra.clones import Clone, clone, read_until

_PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
def here() -> Iterator[Clone]:
    with clone("tidegate") as made:
        yield made


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@contextmanager
def _up(made: Clone, port: int) -> Iterator[tuple["Popen[str]", str]]:
    """A running ./dev up and its address; stopped as a process manager would, if it still runs in the end."""
    running = made.start("up", "--no-demo", "--port", str(port))
    try:
        assert running.stderr is not None
        said = "".join(read_until(running.stderr, "Ctrl-C stops everything"))
        address = re.search(r"Tidegate is at (http://\S+/)", said)
        assert address is not None, said
        yield running, address[1]
    finally:
        running.terminate()
        running.wait(_PATIENCE_SECONDS)


def _status(address: str) -> int:
    """What the address for readiness answers."""
    try:
        with urllib.request.urlopen(f"{address}readyz", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


def _soon(holds: Callable[[], bool]) -> bool:
    """Whether something comes true in time."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_takes_another_port_serves_and_stops_without_a_trace(here: Clone, taken_port: int) -> None:
    with _up(here, taken_port) as (running, address):
        assert address != f"http://127.0.0.1:{taken_port}/"
        assert _status(address) == 200
        second = here.dev("up")
        assert (second.returncode, f"runs already from this folder: {address}" in second.stderr) == (1, True)
        running.send_signal(signal.SIGINT)
        assert running.wait(_PATIENCE_SECONDS) == 0
    assert here.processes() == []


def test_goes_on_after_a_kill(here: Clone, taken_port: int) -> None:
    """Killed outright, ./dev takes its programs along; the next start finds the servers as they were left."""
    with _up(here, taken_port) as (running, _):
        assert here.programs("gunicorn")
        running.kill()
    assert _soon(lambda: not here.programs("gunicorn") and not here.programs("celery"))
    assert here.programs("postgres")
    with _up(here, taken_port) as (_, address):
        assert _status(address) == 200
    assert here.processes() == []


def test_a_worker_that_is_killed_is_started_again(here: Clone, taken_port: int) -> None:
    with _up(here, taken_port) as (running, _):
        assert running.stderr is not None
        (victim,) = here.programs("--queues scheduler")
        victim.kill()
        said = read_until(running.stderr, "starting it again")
        assert said[-1].strip() == "note: scheduler ended with status -9; starting it again"
        assert _soon(lambda: [worker.ppid() for worker in here.programs("--queues scheduler")] == [running.pid])


def test_servers_that_are_killed_are_started_again(here: Clone, taken_port: int) -> None:
    with _up(here, taken_port) as (running, address):
        for name in ("redis-server", "bin/postgres"):
            (victim,) = here.programs(name)
            victim.kill()
        assert running.stderr is not None
        assert "the server of" in read_until(running.stderr, "the server of")[-1]
        assert _soon(lambda: _status(address) == 200)


def test_two_clones_do_not_disturb_each_other(here: Clone, taken_port: int) -> None:
    with _up(here, taken_port) as (_, address):
        with clone("neighbour") as neighbour, _up(neighbour, taken_port) as (_, other):
            assert other != address
            assert _status(other) == 200
        assert neighbour.processes() == []
        assert _status(address) == 200
