"""Who may ask, and what is said while the database does not answer."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message

import pytest

from headwater.api.facade import open_connection
from headwater.errors import InvalidArgument
from headwater.schedule.metrics import Source
from headwater.status.server import Address, parse_address, serve

NOWHERE = "host=/nowhere dbname=x"


@contextmanager
def served(token: str | None = None) -> Iterator[str]:
    """The page of a database that does not answer; its URL."""
    state = {"leading": 0, "running_refreshes": 0}
    source = Source("shop <1>", lambda: open_connection(NOWHERE), lambda: state)
    server = serve(Address("127.0.0.1", 0, token), [source])
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: object) -> None:
        return None


def get(url: str, **headers: str) -> tuple[int, str, Message]:
    request = urllib.request.Request(url, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)
    try:
        with opener.open(request) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers


def test_pages_of_a_database_that_does_not_answer() -> None:
    with served() as url:
        code, text, headers = get(url)
        assert (code, "shop &lt;1&gt;" in text, "it does not answer" in text) == (200, True, True)
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        [reading] = json.loads(get(f"{url}/status.json")[1])
        assert reading["error"].startswith("HW-301: no connection to PostgreSQL")
        assert 'headwater_up{database="shop <1>"} 0' in get(f"{url}/metrics")[1]
        assert "main {" in get(f"{url}/page.css")[1]
        assert get(f"{url}/../../etc/passwd")[0] == 404


def test_another_site_s_name_is_refused() -> None:
    with served() as url:
        for host in ("evil.example", "127.0.0.1.evil.example", ""):
            assert get(url, Host=host)[0] == 401
        for host in ("localhost", "localhost:9187", "127.0.0.1", "[::1]:9187"):
            assert get(url, Host=host)[0] == 200


def test_a_token_is_asked_for() -> None:
    with served("s3cret") as url:
        for path in ("/", "/body", "/metrics", "/status.json", "/live.js", "/?token=other"):
            assert get(url + path)[0] == 401
        assert get(url, Authorization="Bearer other")[0] == 401
        assert get(url, Cookie="headwater=other")[0] == 401
        assert get(f"{url}/metrics", Authorization="Bearer s3cret")[0] == 200
        code, _, headers = get(f"{url}/?token=s3cret")
        assert (code, headers["Location"]) == (303, "/")
        assert "HttpOnly" in headers["Set-Cookie"]
        assert get(url, Cookie=headers["Set-Cookie"].partition(";")[0])[0] == 200


def test_others_than_this_machine_need_a_token() -> None:
    assert parse_address(":80", None) == parse_address("80", None) == Address("127.0.0.1", 80)
    assert parse_address("[::1]:80", "") == Address("::1", 80)
    assert parse_address("0.0.0.0:80", "x") == Address("0.0.0.0", 80, "x")
    for text in ("0.0.0.0:80", "[::]:80", "db.example:80"):
        with pytest.raises(InvalidArgument, match="without a token"):
            parse_address(text, None)
    for text in ("", "localhost", "localhost:http"):
        with pytest.raises(InvalidArgument):
            parse_address(text, None)


def test_an_address_that_is_taken() -> None:
    with served() as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(InvalidArgument, match="cannot be served at"):
            serve(Address("127.0.0.1", port), [])
