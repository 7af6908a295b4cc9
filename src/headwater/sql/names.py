"""Unique column names for one operator tree."""

from __future__ import annotations

_LIMIT = 63  # bytes of an identifier in PostgreSQL


class Namer:
    """Hands out names that are unique in a tree and still tell where they come from."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def unique(self, base: str) -> str:
        """Return `base`, or `base` with a number; never longer than PostgreSQL allows."""
        stem = base
        while True:
            seen = self._used.get(stem, 0)
            self._used[stem] = seen + 1
            name = stem if seen == 0 else _numbered(stem, seen + 1)
            if seen == 0 or name not in self._used:
                self._used.setdefault(name, 1)
                return name


def _numbered(stem: str, number: int) -> str:
    suffix = f"_{number}"
    encoded = stem.encode()[: _LIMIT - len(suffix)]
    return encoded.decode(errors="ignore") + suffix
