"""Where this checkout keeps what it makes."""

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Checkout:
    """One clone of the project. Two clones share nothing, so they may run side by side."""

    root: Path

    @cached_property
    def id(self) -> str:
        """Eight characters that tell this clone and person from others on the machine."""
        return hashlib.sha256(f"{os.getuid()}:{self.root}".encode()).hexdigest()[:8]

    @property
    def var(self) -> Path:
        return self.root / "var"

    @property
    def logs(self) -> Path:
        return self.var / "log"

    @property
    def venv(self) -> Path:
        """The virtual environment; TIDEGATE_VENV names another, which several clones may share."""
        return Path(os.environ.get("TIDEGATE_VENV") or self.root / ".venv").absolute()

    @property
    def python(self) -> str:
        return str(self.program("python"))

    def program(self, name: str) -> Path:
        """A program of the virtual environment."""
        return self.venv / "bin" / name

    def manage(self, *arguments: str) -> list[str]:
        """The command that runs Django's command line."""
        return [self.python, str(self.root / "manage.py"), *arguments]

    @property
    def site_packages(self) -> Path:
        """The folder with the installed packages; it need not exist yet."""
        return next(iter(self.venv.glob("lib/python3*/site-packages")), self.venv / "lib")

    def secret_key(self) -> str:
        """The key that signs this clone's sessions, made on first use."""
        path = self.var / "secret-key"
        if not path.exists():
            unfinished = path.with_suffix(f".{os.getpid()}")
            unfinished.touch(mode=0o600)
            unfinished.write_text(os.urandom(32).hex())
            unfinished.rename(path)
        return path.read_text()


def this_checkout() -> Checkout:
    checkout = Checkout(Path(__file__).resolve().parent.parent.parent)
    checkout.logs.mkdir(parents=True, exist_ok=True)
    return checkout
