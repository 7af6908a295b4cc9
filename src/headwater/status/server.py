"""Serves the page, its JSON and the metrics over HTTP: on this machine only, or with a token."""

from __future__ import annotations

import hmac
import ipaddress
import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from urllib.parse import parse_qs, urlsplit

from headwater.errors import InvalidArgument
from headwater.schedule.metrics import Source, exposition
from headwater.status.board import Board
from headwater.status.page import body, page

DEFAULT_ADDRESS = "127.0.0.1:9187"
_COOKIE = "headwater"
_HTML, _TEXT = "text/html; charset=utf-8", "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self';"
    " connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

Routes = Mapping[str, tuple[str, Callable[[], str]]]  # by path: the kind of the text, and the text


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen, and the token that whoever asks must have; None: whoever is here may."""

    host: str
    port: int
    token: str | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Tell whether a host, as one writes it in an address, is this machine and no other."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_address(text: str, token: str | None) -> Address:
    """Read `host:port`; refuse an address that others reach unless there is a token."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal():
        raise _unusable(text, "there is no port in it")
    address = Address(host.strip("[]") or "127.0.0.1", int(port), token or None)
    if address.token is None and not address.is_loopback:
        raise InvalidArgument(
            f"the status page is not served at {text!r} without a token",
            "others than this machine reach that address, and the page tells of all stream tables",
            "set http_token in the file or HEADWATER_HTTP_TOKEN, or listen on 127.0.0.1",
        )
    return address


def serve(address: Address, sources: list[Source]) -> ThreadingHTTPServer:
    """Serve in a thread, until the server that is returned is shut down."""
    routes, own = _routes(sources), address

    class Handler(_Handler):
        address = own
        pages = routes

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        daemon_threads = True

    try:
        server = Server((address.host, address.port), Handler)
    except (OSError, OverflowError) as error:
        raise _unusable(f"{address.host}:{address.port}", str(error)) from error
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server


def _unusable(address: str, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"the status page cannot be served at {address!r}",
        why,
        f"name an address of this machine and a free port, like {DEFAULT_ADDRESS}",
    )


def _routes(sources: list[Source]) -> Routes:
    boards = [Board(source) for source in sources]

    def asset(name: str) -> Callable[[], str]:
        return (files("headwater.status") / name).read_text

    return {
        "/": (_HTML, lambda: page([board.read() for board in boards])),
        "/body": (_HTML, lambda: body([board.read() for board in boards])),
        "/status.json": ("application/json", lambda: json.dumps([b.read() for b in boards])),
        "/metrics": (_METRICS, lambda: exposition(sources)),
        "/page.css": ("text/css; charset=utf-8", asset("page.css")),
        "/live.js": ("text/javascript; charset=utf-8", asset("live.js")),
    }


class _Handler(BaseHTTPRequestHandler):
    """Answers GET, and nothing else: there is nothing to change here."""

    address: Address
    pages: Routes

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        given = parse_qs(asked.query).get("token")
        if given and self._is_right(given[0]):
            # Out of the address, which stands in histories and on screens.
            cookie = f"{_COOKIE}={given[0]}; HttpOnly; SameSite=Strict; Path=/"
            self._send(303, _TEXT, "", {"Location": asked.path, "Set-Cookie": cookie})
        elif not self._may_ask():
            text = "This page needs a token: /?token=…, or Authorization: Bearer …\n"
            self._send(401, _TEXT, text, {"WWW-Authenticate": "Bearer"})
        elif asked.path in self.pages:
            kind, text_of = self.pages[asked.path]
            self._send(200, kind, text_of(), {})
        else:
            self._send(404, _TEXT, "see /, /status.json and /metrics\n", {})

    def _may_ask(self) -> bool:
        """Without a token, only pages of this machine: another site may have its name lead here."""
        if self.address.token is None:
            host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
            return host is not None and is_loopback(host)
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return self._is_right(bearer) or self._is_right(self._cookie())

    def _cookie(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(_COOKIE)
        except CookieError:
            return ""
        return found.value if found else ""

    def _is_right(self, given: str) -> bool:
        token = self.address.token
        return token is not None and hmac.compare_digest(given.encode(), token.encode())

    def _send(self, code: int, kind: str, text: str, more: Mapping[str, str]) -> None:
        content = text.encode()
        headers = {"Content-Type": kind, "Content-Length": str(len(content)), **_HEADERS, **more}
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the log of the daemon is about its work."""
