from __future__ import annotations

from pathlib import Path

import pytest

from headwater.catalog.install import SERVER_MINIMUM, latest_version, refuse_old_version
from headwater.errors import InvalidPlan, UnsupportedServer


def test_an_old_server_is_refused() -> None:
    with pytest.raises(UnsupportedServer) as caught:
        refuse_old_version(140012, "14.12")
    assert caught.value.what == "headwater needs PostgreSQL 15 or newer; this server is 14.12"
    refuse_old_version(SERVER_MINIMUM, "15.0")


def test_the_package_holds_its_migrations() -> None:
    assert latest_version() >= 1


def test_other_files_are_not_migrations(tmp_path: Path) -> None:
    for name in ("0001_init.sql", "0002_more.sql", "README.md", "2_short.sql", "0003_x.sql~"):
        (tmp_path / name).touch()
    assert latest_version(tmp_path) == 2


@pytest.mark.parametrize(
    "names", [("0002_b.sql",), ("0001_a.sql", "0003_c.sql"), ("0001_a.sql", "0001_b.sql")]
)
def test_a_gap_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(InvalidPlan, match="without gaps"):
        latest_version(tmp_path)
