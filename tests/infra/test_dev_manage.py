"""./dev manage on embedded servers, in awkward places."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.infra.clones import Clone, clone, read_until


@pytest.fixture(scope="module")
def spaced() -> Iterator[Clone]:
    with clone("tide gate") as made:
        yield made


def test_runs_in_a_path_with_spaces_twice_in_a_row(spaced: Clone) -> None:
    for _ in range(2):
        done = spaced.dev("manage", "check", "--database", "default")
        assert (done.returncode, "no issues" in done.stdout) == (0, True), done.stderr
    assert spaced.processes() == []


def test_exit_status_is_the_commands(spaced: Clone) -> None:
    done = spaced.dev("manage", "no_such_command")
    assert done.returncode == 1
    assert "Unknown command: 'no_such_command'" in done.stderr


def test_lock_files_of_a_killed_server_are_no_hindrance(spaced: Clone) -> None:
    """Their process number belongs to somebody else by now: to this very process."""
    assert spaced.dev("manage", "check").returncode == 0
    (data,) = spaced.root.glob("var/main/postgres-*")
    lock = data / "postmaster.pid"
    lock.write_text(f"{os.getpid()}\n{data}\n0\n5432\n/nowhere\n\n0 0\nready\n")
    if os.getuid() == 0:
        os.chown(lock, data.stat().st_uid, data.stat().st_gid)
    done = spaced.dev("manage", "check", "--database", "default")
    assert done.returncode == 0, done.stderr


def test_root_may_start_it_where_nobody_else_may_enter() -> None:
    """The servers then live in a folder of their own, named in the output, and no rights of the clone change."""
    with clone("tidegate", mode=0o700) as made:
        done = made.dev("manage", "check", "--database", "default")
        assert done.returncode == 0, done.stderr
        assert (f"they live in {made.elsewhere}" in done.stderr) is (os.getuid() == 0)
        assert stat.S_IMODE(made.root.parent.stat().st_mode) == 0o700
        assert made.processes() == []


@pytest.fixture
def ordinary_user() -> Iterator[pwd.struct_passwd]:
    """Somebody without rights: a user made for this test when we are root, else ourselves."""
    if os.getuid() != 0:
        yield pwd.getpwuid(os.getuid())
        return
    name = f"tide{os.getpid()}"
    subprocess.run(["useradd", "--no-create-home", "--home-dir", "/nonexistent", name], check=True)
    yield pwd.getpwnam(name)
    subprocess.run(["userdel", name], check=True)


def test_servers_run_as_an_ordinary_user(ordinary_user: pwd.struct_passwd) -> None:
    """The tools need only Python itself, so this takes the system's; the servers' programs are the wheels'."""
    with clone("of somebody") as made:
        _give(made.root, ordinary_user)
        said = _as(ordinary_user, made, "print(running.environment['DATABASE_URL'].split('?')[0]); print(os.getuid())")
        assert said.split() == ["postgresql://tidegate@/tidegate", str(ordinary_user.pw_uid)]
        (data,) = made.root.glob("var/main/postgres-*")
        assert data.stat().st_uid == ordinary_user.pw_uid


def _give(folder: Path, user: pwd.struct_passwd) -> None:
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)


def _as(user: pwd.struct_passwd, made: Clone, code: str) -> str:
    """What the code prints as that user while the servers run."""
    script = (
        f"import os, sys; sys.path[0] = {str(made.root)!r}\n"
        "from tools.devtool import layout, servers\n"
        f"with servers.main_servers(layout.this_checkout()) as running: {code}\n"
    )
    switch = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if os.getuid() == 0 else {}
    done = subprocess.run(  # type: ignore[call-overload]
        [_python_for(user), "-c", script],
        cwd="/",
        env=made.environment(),
        capture_output=True,
        text=True,
        check=False,
        **switch,
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def _python_for(user: pwd.struct_passwd) -> str:
    """A Python that this user may run; root's own is often in a folder that only root may enter."""
    for candidate in ("/usr/bin/python3", "/usr/local/bin/python3", shutil.which("python3") or ""):
        asked = ["/bin/sh", "-c", 'exec "$1" -c "import sys; sys.exit(sys.version_info < (3, 11))"', "sh", candidate]
        switch = {"user": user.pw_uid, "group": user.pw_gid} if os.getuid() == 0 else {}
        if subprocess.run(asked, capture_output=True, cwd="/", check=False, **switch).returncode == 0:  # type: ignore[call-overload]
            return candidate
    raise AssertionError("no Python 3.11 or newer that an ordinary user may run: apt install python3")


def test_stops_its_servers_when_told_to_end(spaced: Clone) -> None:
    running = spaced.start("manage", "shell", "-c", "import time; print('up', flush=True); time.sleep(60)")
    assert running.stdout is not None
    assert read_until(running.stdout, "up")[-1] == "up\n"
    assert spaced.programs("postgres")
    running.terminate()
    assert running.wait(60) == 128 + signal.SIGTERM
    assert spaced.processes() == []
