"""The status page in a real browser, at the width of a desk and of a phone."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

import headwater
from tests.conftest import NOT_RUN
from tests.daemons import Process, daemon, until
from tests.servers import Server

Connection = psycopg.Connection[Any]

SETUP = """
CREATE TABLE customers (id int PRIMARY KEY, name text);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount int);
CREATE TABLE "<b>lines</b> & more" (order_id int, product text, quantity int);
INSERT INTO customers VALUES (1, 'ann'), (2, 'bob');
INSERT INTO orders SELECT n, 1 + n % 2, n FROM generate_series(1, 30) AS n;
"""
EVIL = '"<img src=x onerror=alert(1)>"'
TABLES = {
    "totals": ("SELECT customer, sum(amount) AS total FROM orders GROUP BY customer", "2s"),
    "named_totals": ("SELECT c.name, t.total FROM totals t JOIN customers c ON c.id = t.customer",
                     "2s"),
    "best_customer_of_all_by_total": ("SELECT max(total) AS best FROM named_totals", "calculated"),
    EVIL: ('SELECT product, count(*) AS n FROM "<b>lines</b> & more" GROUP BY product', "1h"),
    "shares": ("SELECT id, 100 / amount AS share FROM orders", "1s"),
    "live": ("SELECT name, count(*) AS n FROM customers GROUP BY name", None),
}  # fmt: skip
# The directory in which to keep pictures of the page, for people to look at.
PICTURES = os.environ.get("HEADWATER_TEST_PICTURES")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium: a failure in CI where it is missing, a skip elsewhere."""
    found = shutil.which("chromium")
    if found is None:
        if os.environ.get("CI") == "true" or os.environ.get("HEADWATER_TEST_REQUIRE_DB") == "1":
            pytest.fail("the Debian package chromium is not installed")
        pytest.skip(f"{NOT_RUN}status page: the Debian package chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def database(pg18: Server) -> Iterator[str]:
    dsn = pg18.create_database()
    with headwater.connect(dsn) as hw:
        hw.connection.execute("SET pg_trickle.min_target_lag_seconds = 1")
        hw.connection.execute(SETUP)
        for name, (query, schedule) in TABLES.items():
            mode = "IMMEDIATE" if schedule is None else "DIFFERENTIAL"
            hw.create_stream_table(name, query, schedule, mode)
    yield dsn
    pg18.drop_database(dsn)


@pytest.fixture
def url(database: str) -> Iterator[str]:
    """The address of a daemon's page."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with daemon(database, "--http", f"127.0.0.1:{port}") as process:
        wait_for_page(process)
        yield f"http://127.0.0.1:{port}/"
        assert process.end() == 0


def wait_for_page(process: Process) -> None:
    process.wait_for("status page")
    process.wait_for("leading")


def opened(browser: Browser, url: str, width: int, height: int, scheme: Any = "light") -> Page:
    page = browser.new_page(
        viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=2
    )
    page.on("dialog", lambda dialog: pytest.fail("a name ran as a script"))
    page.on("console", lambda message: pytest.fail(message.text))
    page.goto(url)
    return page


def picture(page: Page, name: str) -> None:
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"{name}.png", full_page=True)


def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than the screen."""
    width: int = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return width


def texts(page: Page, selector: str) -> list[str]:
    return [each.inner_text() for each in page.query_selector_all(selector)]


def test_the_page_lives_and_fits(browser: Browser, url: str, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        desk, phone = opened(browser, url, 1280, 900), opened(browser, url, 375, 740)
        check_graph(desk, "wide", "narrow")
        check_graph(phone, "narrow", "wide")
        check_live(desk, conn)
        check_failure(desk, conn)
        until(lambda: texts(phone, ".verdict")[0].endswith("to see to."))
        phone.click("#table-public\\.shares summary")
        for page, name in ((desk, "desk"), (phone, "phone")):
            assert overflow(page) == 0
            assert page.query_selector("main img") is None
            assert page.query_selector("main b") is None
            picture(page, name)
        check_links(phone)
        dark = opened(browser, url, 1280, 900, "dark")
        picture(dark, "dark")
        for page in (desk, phone, dark):
            page.close()


def check_graph(page: Page, shown: str, hidden: str) -> None:
    """Every table and source is drawn, once for each width, and only one drawing shows."""
    assert page.is_visible(f".graph.{shown}")
    assert not page.is_visible(f".graph.{hidden}")
    assert len(page.query_selector_all(f".graph.{shown} g.node")) == len(TABLES) + 3
    assert len(page.query_selector_all(f".graph.{shown} .edge")) == 7
    assert texts(page, "summary .name") == sorted(
        f"public.{name}" for name in TABLES
    )  # as the server sorts them: by code point
    assert page.is_visible(f".graph.{shown} text.name >> text=<b>lines")


def check_live(page: Page, conn: Connection) -> None:
    """What happens is shown without anyone asking, and what is open stays so."""
    card = "#table-public\\.totals"
    page.click(f"{card} summary")
    conn.execute("INSERT INTO orders VALUES (100, 1, 1000)")
    until(lambda: any("DIFFERENTIAL" in text for text in texts(page, f"{card} tbody tr")))
    assert page.is_visible(f"{card} .course .lag")
    assert page.query_selector(f"{card} .course .target")  # flat, which counts as invisible
    assert "engine: PostgreSQL was asked for" in page.inner_text(f"{card} dl")
    calculated = "#table-public\\.best_customer_of_all_by_total"
    page.click(f"{calculated} summary")
    assert "what its readers need: at most 60 s old" in page.inner_text(f"{calculated} dl")
    assert page.query_selector(f"{calculated} .course .target")
    page.click(f"{calculated} summary")


def check_failure(page: Page, conn: Connection) -> None:
    """A failure shows at once: in the verdict, with its fix, and in the card."""
    assert "failed" not in str(page.get_attribute("#table-public\\.shares", "class"))
    conn.execute("INSERT INTO orders VALUES (101, 1, 0)")
    until(lambda: page.query_selector("#table-public\\.shares.suspended"))
    until(lambda: page.query_selector(".graph.wide .node.suspended"))
    [finding] = [text for text in texts(page, ".findings li") if "division by zero" in text]
    assert "resume_stream_table('public.shares')" in finding
    page.click("#table-public\\.shares summary")
    assert "HW-111" in page.inner_text("#table-public\\.shares .trouble")


def check_links(page: Page) -> None:
    """A node of the graph leads to its card, which opens."""
    name = "#table-public.named_totals"
    page.click(f'.graph.narrow a[href="{name}"]')
    until(lambda: page.is_visible("#table-public\\.named_totals dl"))
