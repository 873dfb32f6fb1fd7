"""Real workers on the test database, with the broker behind a door of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import redis
from celery import Celery
from django.conf import settings
from django.db import connection
from kombu.exceptions import OperationalError

from tests.crash.outage import Door, to_unix_socket

ROOT = Path(__file__).resolve().parents[2]
BROKER_DATABASE = 7 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""Of Redis: one for each process of the suite; its other tests use 0."""
PATIENCE_S = 25.0
TICK_S = 0.3
CALM_LOOKS = 6


class Stand:
    """Doors to the database and to Redis, and the workers that go through them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = Door(_to_database)
        self.redis = Door(_to_redis)
        password = urlsplit(settings.REDIS_URL).password
        login = f":{password}@" if password else ""
        self.redis_url = f"redis://{login}127.0.0.1:{self.redis.port}/{BROKER_DATABASE}"
        redis.Redis.from_url(self.redis_url).flushdb()
        self.app = Celery(broker=self.redis_url)
        self.app.conf.broker_transport_options = {"global_keyprefix": "tidegate:", "socket_connect_timeout": 1}
        self.app.conf.task_publish_retry = False
        self.workers: list[subprocess.Popen[bytes]] = []
        self.crash_file = folder / "crash"

    def crash_at(self, point: str) -> None:
        """The next process that comes to the point ends as by a power cut."""
        self.crash_file.write_text(point, encoding="utf-8")

    @property
    def has_crashed(self) -> bool:
        return not self.crash_file.exists()

    def kill_worker(self) -> None:
        """The newest worker and its children, at once."""
        os.killpg(self.workers[-1].pid, signal.SIGKILL)
        self.workers[-1].wait()

    def start_worker(self) -> None:
        """A worker of both queues with two processes."""
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "DATABASE_URL": self._database_url(),
            "REDIS_URL": self.redis_url,
            "TIDEGATE_CRASH_FILE": str(self.crash_file),
        }
        queues = ("-Q", "scheduler,default", "--concurrency", "2", "--without-gossip", "--without-mingle")
        command = [sys.executable, "-m", "celery", "-A", "console.celery", "worker", *queues, "--loglevel", "WARNING"]
        log = (self.folder / f"worker-{len(self.workers)}.log").open("wb")
        self.workers.append(
            subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)
        )

    def _database_url(self) -> str:
        found = connection.settings_dict
        login = quote(found["USER"]) + (f":{quote(found['PASSWORD'])}" if found["PASSWORD"] else "")
        return f"postgresql://{login}@127.0.0.1:{self.database.port}/{found['NAME']}"

    def tick(self) -> None:
        """What the beat does every second."""
        with suppress(OperationalError, redis.RedisError):
            self.app.send_task("scheduler.tasks.tick", queue="default", expires=5)

    @contextmanager
    def beating(self) -> Iterator[None]:
        stopped = threading.Event()

        def beat() -> None:
            while not stopped.wait(TICK_S):
                self.tick()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def rest(self) -> None:
        """Forget all messages and wait until no worker is at the database, so that its tables can be emptied."""
        redis.Redis.from_url(self.redis_url).flushdb()
        calm = 0
        while calm < CALM_LOOKS:
            calm = 0 if self._is_busy() else calm + 1
            time.sleep(0.05)

    @staticmethod
    def _is_busy() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND state <> 'idle')"
            )
            return bool(cursor.fetchone()[0])

    def end(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        self.database.shut()
        self.redis.shut()


def until(holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {patience_s:g} s: {what}"
        time.sleep(0.01)


def _to_database() -> socket.socket:
    found = settings.DATABASES["default"]
    port = int(found["PORT"] or 5432)
    if found["HOST"].startswith("/"):
        return to_unix_socket(str(Path(found["HOST"]) / f".s.PGSQL.{port}"))
    return socket.create_connection((found["HOST"] or "127.0.0.1", port))


def _to_redis() -> socket.socket:
    parts = urlsplit(settings.REDIS_URL)
    if parts.scheme == "unix":
        return to_unix_socket(parts.path)
    return socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 6379))
