"""What the product needs beside Python packages; for the container image: `python -m tools.devtool.build`."""

from tools.devtool import assets, messages
from tools.devtool.layout import Checkout, this_checkout


def ensure(checkout: Checkout) -> None:
    """Browser assets and compiled translations, made where missing or out of date."""
    assets.ensure(checkout)
    messages.ensure(checkout.root / "locale")


if __name__ == "__main__":
    ensure(this_checkout())
