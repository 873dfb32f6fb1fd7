"""The virtual environment: made once, filled with pinned and hashed packages, left alone while it is current."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools.devtool import locks, say
from tools.devtool.layout import Checkout

RUN = ("requirements.txt", "requirements-embedded.txt")
DEVELOP = (*RUN, "requirements-dev.txt")


def ensure(checkout: Checkout, files: tuple[str, ...]) -> None:
    """Make the environment and install the files' packages, unless that is done already."""
    if _is_current(checkout, files):
        return
    checkout.venv.parent.mkdir(parents=True, exist_ok=True)
    with locks.alone(checkout.venv.parent / f"{checkout.venv.name}.lock"):
        if _is_current(checkout, files):
            return
        if not _works(checkout.python):
            with say.step(f"making the virtual environment {checkout.venv}"):
                _make(checkout)
        _install(checkout, files)
        for done in {RUN, files}:
            _stamp_file(checkout, done).write_text(_stamp(checkout, done))


def install_into(checkout: Checkout, folder: Path, file: str) -> None:
    """Install one file's packages into a folder apart from the environment; the folder appears whole or not at all."""
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [checkout.python, "-m", "pip", "install", "--require-hashes", "--no-deps", "--target", str(unfinished)]
    done = subprocess.run([*command, "-r", str(checkout.root / file)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise say.Failed(f"pip could not install {file}:\n{done.stdout}{done.stderr}")
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)


def _is_current(checkout: Checkout, files: tuple[str, ...]) -> bool:
    try:
        return _stamp_file(checkout, files).read_text() == _stamp(checkout, files)
    except FileNotFoundError:
        return False


def _stamp_file(checkout: Checkout, files: tuple[str, ...]) -> Path:
    return checkout.venv / f".tidegate-{'develop' if files == DEVELOP else 'run'}"


def _stamp(checkout: Checkout, files: tuple[str, ...]) -> str:
    """What the installed packages depend on: the pins, and where the environment is (it cannot be moved)."""
    pins = b"".join((checkout.root / name).read_bytes() for name in files)
    return hashlib.sha256(str(checkout.venv).encode() + pins).hexdigest()


def _works(python: str) -> bool:
    try:
        return subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _make(checkout: Checkout) -> None:
    shutil.rmtree(checkout.venv, ignore_errors=True)
    done = subprocess.run([sys.executable, "-m", "venv", checkout.venv], capture_output=True, text=True, check=False)
    if done.returncode:
        raise say.Failed(
            f"Python could not make a virtual environment:\n{done.stdout}{done.stderr}\n"
            "On Debian and Ubuntu the package python3-venv is missing: apt install python3-venv"
        )


def _install(checkout: Checkout, files: tuple[str, ...]) -> None:
    count = sum(len(re.findall(r"^[a-z0-9][^ ]*==", (checkout.root / name).read_text(), re.M)) for name in files)
    log = checkout.logs / "install.log"
    command = [checkout.python, "-m", "pip", "install", "--require-hashes", "--disable-pip-version-check"]
    command += [part for name in files for part in ("-r", str(checkout.root / name))]
    with say.step(f"installing {count} packages, about a minute plus downloads"), log.open("wb") as output:
        running = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONUTF8": "1"}
        )
        while running.poll() is None:
            time.sleep(2)
            say.tick()
        if running.returncode:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise say.Failed(f"pip could not install the packages. The whole log: {log}\n{tail}")
