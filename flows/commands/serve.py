"""Show the results of a store in a browser, also while a sweep fills it. Nothing can be changed from there."""

import argparse
import sys
from ipaddress import ip_address
from pathlib import Path

from dovetail.flows.explore.store.result_store import Store
from dovetail.flows.options.schedules import add_cache_option, use_schedules
from dovetail.flows.output.reply import Report
from dovetail.flows.report.page.live import Live
from dovetail.flows.report.page.server import Server

PORT = 8642


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="STORE", type=Path, help="the result store of `dovetail sweep`")
    parser.add_argument("--sweep", metavar="N", type=int, help="number of the sweep in the store; default: the latest")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen at; default: %(default)s, for this machine alone",
    )
    parser.add_argument("--port", type=int, default=PORT, help="0: any that is free; default: %(default)s")
    add_cache_option(parser)


def run(args: argparse.Namespace) -> Report:
    """Run the command, until it is interrupted."""
    use_schedules(args)
    with Store(args.store) as store, Server(Live(store, args.sweep), args.host, args.port) as server:
        print(f"{args.store} at {server.url} (Ctrl-C ends)", file=sys.stderr, flush=True)
        if not _is_loopback(args.host):
            print(f"anyone who reaches {args.host} can read the results and have points explained", file=sys.stderr)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return Report({"store": str(args.store), "url": server.url}, [])
    raise AssertionError("the server ends only when it is interrupted")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
