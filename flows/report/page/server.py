"""The web server of a live page: three addresses to read, and nothing else.

It answers only requests that name this machine (`Host`), so that a page from elsewhere cannot reach it by a name which
it lets point here, and lets no other site's script read an answer. No path leads to a file, and nothing can be written.
"""

from __future__ import annotations

import json
import socket
import sys
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from threading import BoundedSemaphore, Timer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dovetail.flows.report import page
from dovetail.flows.report.page.live import BusyError, Live, told
from dovetail.sw.errors import DovetailError

CONNECTIONS = 32
"""At a time; a page has one or two. More are told to come later."""
DEADLINE = 15.0
"""Seconds for a whole request to arrive, and again for the whole answer to be taken."""

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Server(ThreadingHTTPServer):
    """Serves a sweep until it is shut down.

    Parameters
    ----------
    live: the sweep.
    host: address or name to listen at.
    port: 0 for any that is free.

    Raises
    ------
    DovetailError: the port is taken or no port, or the host is none of this machine.
    """

    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(self, live: Live, host: str, port: int) -> None:
        self.live = live
        self.host = host
        self._places = BoundedSemaphore(CONNECTIONS)
        if not 0 <= port < 1 << 16:
            raise DovetailError(f"port must be 0..65535, not {port}")
        try:
            self.address_family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            super().__init__(place[:2], Handler)  # type: ignore[arg-type]
        except OSError as error:
            raise DovetailError(
                f"port {port} of {host} must be free to listen at: {error.strerror or error}; give"
                " another by --port (0: any that is free), or another --host"
            ) from error

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, as long as there are not too many."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with suppress(OSError):  # at once, and without waiting for anybody
            request.settimeout(0)
            request.sendall(_BUSY)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection, and give its place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of readers that go away while they are answered."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """Where the page is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_address[1]}/"

    def is_ours(self, host: str) -> bool:
        """Whether a request's Host is this server: an address (which nobody can redirect), localhost, or its name."""
        name = urlsplit(f"//{host}").hostname or ""
        try:
            ip_address(name)
        except ValueError:
            return name in ("localhost", self.host.lower(), socket.gethostname().lower())
        return True


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: Server
    server_version, sys_version = "dovetail", ""
    timeout = DEADLINE

    def setup(self) -> None:
        """A request must be whole in time: a reader that sends a byte now and then holds no place."""
        super().setup()
        self._end = self._within(DEADLINE)

    def finish(self) -> None:
        """The answer is taken, or it is too late."""
        try:
            super().finish()
        finally:
            self._end.cancel()

    def _within(self, seconds: float) -> Timer:
        """Close the connection then."""
        end = Timer(seconds, self._close)
        end.daemon = True
        end.start()
        return end

    def _close(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """Answer a request."""
        self._end.cancel()  # an explanation takes the time that it takes
        status, kind, body = self._answer()
        self._end = self._within(DEADLINE)
        self._send(status, kind, body)

    def do_HEAD(self) -> None:
        """Answer as to GET, without the body."""
        self.do_GET()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse an invalid request in one line."""
        self.close_connection = True
        self.request_version = self.protocol_version  # headers go out also to who asked without a version
        self._send(HTTPStatus(code), *_text(HTTPStatus(code), HTTPStatus(code).phrase)[1:])

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", f"{page.policy(page.OWN)}; frame-ancestors 'none'")
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: an open page asks every other second."""

    def _answer(self) -> tuple[HTTPStatus, str, bytes]:
        try:
            address = urlsplit(self.path)
            ours = self.server.is_ours(self.headers.get("Host", ""))
        except ValueError:
            return _text(HTTPStatus.BAD_REQUEST, "address must be one that can be read")
        if not ours:
            return _text(HTTPStatus.FORBIDDEN, "Host must be this machine: open the page by its address")
        if address.path == "/":
            return HTTPStatus.OK, "text/html", page.render_live(self.server.live.title).encode()
        if self.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            return _text(HTTPStatus.FORBIDDEN, "only the page of this server may ask for its data")
        if address.path not in ("/rows", "/explain"):
            return _text(HTTPStatus.NOT_FOUND, "there is nothing here: the page is at /")
        return self._data(address.path, {name: values[0] for name, values in parse_qs(address.query).items()})

    def _data(self, path: str, query: dict[str, str]) -> tuple[HTTPStatus, str, bytes]:
        live = self.server.live
        try:
            if path == "/rows":
                return _json(HTTPStatus.OK, live.rows(_count(query, "after"), query.get("session", "")))
            return _json(HTTPStatus.OK, live.explain(_count(query, "point")))
        except BusyError as error:
            return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": told(error)})
        except Exception as error:  # whatever is wrong with one point, the page goes on
            return _json(HTTPStatus.BAD_REQUEST, {"error": told(error)})


def _count(query: dict[str, str], name: str) -> int:
    text = query.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise DovetailError(f"{name} must be a number, not {text[:40]!r}")
    return int(text)


def _text(status: HTTPStatus, text: str) -> tuple[HTTPStatus, str, bytes]:
    return status, "text/plain", f"{text}\n".encode()


_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 2\r\n"
_BUSY += b"X-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'none'\r\n\r\n"


def _json(status: HTTPStatus, data: Any) -> tuple[HTTPStatus, str, bytes]:
    return status, "application/json", json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
