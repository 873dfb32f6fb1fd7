"""`./dev up`: the whole product on this machine."""

import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from tools.devtool import build, locks, python_env, say, servers
from tools.devtool.layout import Checkout
from tools.devtool.supervisor import Service, Supervisor

_READY_SECONDS = 90.0
_PORTS_TRIED = 100


@dataclass(frozen=True)
class Options:
    host: str = "127.0.0.1"
    port: int = 8000
    demo: bool = True
    debug: bool = False


def up(checkout: Checkout, options: Options) -> int:
    with locks.alone_or_none(checkout.var / "up.lock") as free:
        if not free:
            raise say.Failed(f"Tidegate runs already from this folder: {_address_file(checkout).read_text()}")
        say.line("Tidegate starts")
        python_env.ensure(checkout, python_env.RUN)
        build.ensure(checkout)
        servers.describe(checkout)
        with servers.main_servers(checkout) as running:
            return _run(checkout, options, running)


def _run(checkout: Checkout, options: Options, running: servers.Servers) -> int:
    environment = {**running.environment, **({"TIDEGATE_DEBUG": "1"} if options.debug else {})}
    logins = _prepare(checkout, options, environment)
    port = _free_port(options.host, options.port)
    url = f"http://{options.host}:{port}/"
    _address_file(checkout).write_text(url)
    with Supervisor(_services(checkout, options, port, environment)) as supervisor:
        with say.step("starting web server, workers and clock"):
            _wait_until_ready(f"{url}readyz", supervisor)
        if not supervisor.stopping:
            _greet(url, logins, checkout)
        supervisor.watch(running.revive)
        say.line("\nTidegate stops; the next ./dev up goes on from here")
    return 0


def _prepare(checkout: Checkout, options: Options, environment: dict[str, str]) -> str:
    """Bring the database up to date. The command's answer tells who may sign in; its progress goes by on the way."""
    say.line("  bringing the database up to date")
    command = checkout.manage("prepare", *([] if options.demo else ["--no-demo"]))
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise say.Failed("The database could not be prepared; see above.")
    return done.stdout


def _services(checkout: Checkout, options: Options, port: int, environment: dict[str, str]) -> list[Service]:
    web = ["gunicorn", "console.asgi:application", "--worker-class", "asgi", "--bind", f"{options.host}:{port}"]
    web += [
        "--graceful-timeout",
        "3",
        "--timeout",
        "60",
        "--no-control-socket",
        *(["--reload"] if options.debug else []),
    ]
    worker = [
        "celery",
        "-A",
        "console.celery",
        "worker",
        "--loglevel",
        "warning",
        "--without-gossip",
        "--without-mingle",
    ]
    beat = ["celery", "-A", "console.celery", "beat", "--scheduler", "celery.beat:Scheduler"]
    programs = {
        "web": web,
        "scheduler": [*worker, "--queues", "scheduler", "--concurrency", "1", "--hostname", "scheduler@%h"],
        "worker": [*worker, "--queues", "default", "--concurrency", "4", "--hostname", "worker@%h"],
        "beat": [*beat, "--pidfile", ""],
    }
    # A worker that is asked to end gets a moment for the task in hand, then leaves it to the next start.
    environment = {**environment, "REMAP_SIGTERM": "SIGQUIT"}
    return [
        Service(name, [checkout.python, "-m", *program], checkout.logs / f"{name}.log", environment, checkout.root)
        for name, program in programs.items()
    ]


def _free_port(host: str, wanted: int) -> int:
    for port in range(wanted, wanted + _PORTS_TRIED):
        if _is_free(host, port):
            if port != wanted:
                say.note(f"port {wanted} is taken; using {port}")
            return port
    raise say.Failed(f"No free port from {wanted} to {wanted + _PORTS_TRIED - 1} on {host}. Choose one with --port.")


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _wait_until_ready(url: str, supervisor: Supervisor) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not supervisor.stopping and not _answers(url):
        supervisor.restart_ended()
        if time.monotonic() > deadline:
            raise say.Failed(f"The web server does not answer at {url}; see var/log/web.log.")
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own address
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _greet(url: str, logins: str, checkout: Checkout) -> None:
    say.line(f"\nTidegate is at {url}")
    say.line(logins.rstrip())
    say.line(f"Logs are in {checkout.logs}. Ctrl-C stops everything.")


def _address_file(checkout: Checkout) -> Path:
    return checkout.var / "address"
