"""Run fakeredis' TCP server: the stand-in where no real Redis fits. Usage: python -m tools.devtool.fake_redis PORT"""

import sys

from fakeredis import TcpFakeServer


def main() -> None:
    TcpFakeServer(("127.0.0.1", int(sys.argv[1])), server_type="redis").serve_forever()


if __name__ == "__main__":
    main()
