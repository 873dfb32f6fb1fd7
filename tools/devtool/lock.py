"""`./dev lock`: choose versions and hashes anew from the .in files, for every supported Python and platform at once."""

import subprocess
import sys
from collections.abc import Sequence

from tools.devtool import say
from tools.devtool.layout import Checkout

_RESOLVER = "uv==0.13.9"
_FILES = ("requirements", "requirements-embedded", "requirements-dev", "requirements-assets")
_OPTIONS = ("--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate")


def lock(checkout: Checkout, arguments: Sequence[str]) -> int:
    """Write the .txt files; versions stay as they are unless an argument such as --upgrade says otherwise."""
    tools = checkout.var / "lock"
    python = str(tools / "bin" / "python")
    if not tools.exists():
        with say.step("installing the resolver"):
            subprocess.run([sys.executable, "-m", "venv", tools], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", _RESOLVER], check=True)
    for name in _FILES:
        command = [python, "-m", "uv", "pip", "compile", "--quiet", *_OPTIONS, "--no-emit-index-url", *arguments]
        with say.step(f"locking {name}.txt"):
            done = subprocess.run([*command, f"{name}.in", "-o", f"{name}.txt"], cwd=checkout.root, check=False)
        if done.returncode:
            return done.returncode
    return 0
