"""Which user runs the embedded servers, and where their files may be.

PostgreSQL refuses to run as root. When root starts us, the servers run as an unprivileged user, and that user may
not be able to enter the clone (a clone in root's own home, say). No rights outside `var/` are ever changed: then
binaries and data get a folder of their own under /var/tmp instead.
"""

import os
import pwd
import shutil
import stat
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypedDict

from tools.devtool import say
from tools.devtool.layout import Checkout

_LONGEST_SOCKET_FOLDER = 80  # a socket's whole path may take about 100 bytes


class RunAs(TypedDict):
    cwd: str
    user: int | None
    group: int | None
    extra_groups: list[int] | None


@dataclass(frozen=True)
class Account:
    """Who runs the servers; `switch` tells whether that is someone else than us."""

    uid: int
    gid: int
    switch: bool

    def arguments(self) -> RunAs:
        """Arguments for subprocess that start a program as this account, away from folders it may not enter."""
        if not self.switch:
            return {"cwd": "/", "user": None, "group": None, "extra_groups": None}
        return {"cwd": "/", "user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, folder: Path) -> Path:
        """The folder, private to this account; made if missing, refused when somebody else made it."""
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid not in (os.getuid(), self.uid):
            raise say.Failed(f"{folder} belongs to somebody else. Remove it and try again.")
        if facts.st_uid != self.uid:
            os.chown(folder, self.uid, self.gid)
        folder.chmod(0o700)
        return folder

    def may_run(self, program: Path, inside: Path) -> bool:
        """Whether this account may enter the folder and execute the program."""
        asked = ["/bin/sh", "-c", 'cd -- "$1" && test -x "$2"', "sh", str(inside), str(program)]
        return subprocess.run(asked, stderr=subprocess.DEVNULL, check=False, **self.arguments()).returncode == 0


@dataclass(frozen=True)
class Place:
    """Folders for one set of embedded servers."""

    account: Account
    home: Path
    sockets: Path
    elsewhere: bool

    def open_sockets(self) -> None:
        """Make the folder for sockets; one that somebody else made is refused."""
        self.account.own(self.sockets)

    def tidy(self) -> None:
        """Remove the folder for sockets when the last server has left it."""
        with suppress(OSError):
            self.sockets.rmdir()

    def program(self, found: Path) -> Path:
        """The program in a spot where the account may run it: as found, or in a copy of its wheel."""
        if not self.elsewhere or self.account.may_run(found, Path("/")):
            return found
        wheel = next((folder for folder in found.parents if folder.parent.name == "site-packages"), found.parent)
        copy = self.home.parent / f"{wheel.name}-{wheel.stat().st_mtime_ns}"
        if not copy.exists():
            _copy_readable(wheel, copy)
        return copy / found.relative_to(wheel.parent)


def ourselves() -> Account:
    return Account(os.getuid(), os.getgid(), switch=False)


def _copy_readable(wheel: Path, copy: Path) -> None:
    """Copy a wheel's folder and that of its libraries so that everybody may read them; whole or not at all."""
    unfinished = copy.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    for folder in (wheel, wheel.with_name(f"{wheel.name}.libs")):
        if folder.exists():
            shutil.copytree(folder, unfinished / folder.name, symlinks=True)
    for path in (unfinished, *unfinished.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o055 if mode & stat.S_IXUSR else 0o044))
    unfinished.rename(copy)


def server_account() -> Account:
    """Ourselves, or for root the user named by TIDEGATE_SERVER_USER (default: nobody)."""
    if os.getuid() != 0:
        return ourselves()
    name = os.environ.get("TIDEGATE_SERVER_USER", "nobody")
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise say.Failed(f"There is no user {name!r} to run the embedded servers. Set TIDEGATE_SERVER_USER.") from None
    return Account(entry.pw_uid, entry.pw_gid, switch=True)


def find_place(checkout: Checkout, purpose: str, program: Path) -> Place:
    """The folders for the servers of one purpose (`main`, `test`), made if missing."""
    account = server_account()
    home = checkout.var / purpose
    home.mkdir(exist_ok=True)
    home.chmod(0o755)
    elsewhere = not account.may_run(program, home)
    if elsewhere:
        home = _elsewhere(checkout, purpose, account)
    return Place(account, home, _socket_folder(checkout, purpose, account), elsewhere)


def _elsewhere(checkout: Checkout, purpose: str, account: Account) -> Path:
    base = Path("/var/tmp") / f"tidegate-{checkout.id}"  # noqa: S108 - owner checked below
    base.mkdir(mode=0o755, exist_ok=True)
    if base.is_symlink() or base.lstat().st_uid != os.getuid():
        raise say.Failed(f"{base} belongs to somebody else. Remove it and try again.")
    base.chmod(0o755)
    name = pwd.getpwuid(account.uid).pw_name
    _note_once(f"user {name!r}, who runs the embedded servers, may not enter {checkout.root}: they live in {base}.")
    home = base / purpose
    home.mkdir(exist_ok=True)
    home.chmod(0o755)
    return home


@cache
def _note_once(text: str) -> None:
    say.note(text)


def _socket_folder(checkout: Checkout, purpose: str, account: Account) -> Path:
    """A private folder with a short path, made when a server starts."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    usable = runtime and not account.switch and len(runtime) < _LONGEST_SOCKET_FOLDER and os.access(runtime, os.W_OK)
    base = Path(runtime) if usable else Path("/tmp")  # noqa: S108 - owner checked by own()
    return base / f"tidegate-{checkout.id}-{purpose}"
