"""The command line of ./dev."""

import argparse
import subprocess
import sys
from collections.abc import Sequence

from tools.devtool import python_env, say, servers
from tools.devtool.layout import Checkout, this_checkout

_EXAMPLES = """
examples:
  ./dev up                      the whole product with demo data, on a free port
  ./dev manage migrate          any Django command, with the embedded servers running
"""


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["manage"]:
            return manage(this_checkout(), given[1:])
        _parser().parse_args(given)
    except say.Failed as failed:
        say.line(f"\n{failed}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 2


def manage(checkout: Checkout, arguments: Sequence[str]) -> int:
    python_env.ensure(checkout, python_env.RUN)
    with servers.main_servers(checkout) as environment:
        command = [checkout.python, checkout.root / "manage.py", *arguments]
        return subprocess.run(command, env=environment, check=False).returncode


def _parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog="./dev", epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)


if __name__ == "__main__":
    sys.exit(main())
