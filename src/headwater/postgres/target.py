"""The stored stream table, as the statements of a refresh see it."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.algebra.schema import Schema


@dataclass(frozen=True, slots=True)
class Target:
    """The stored stream table: its name, columns, and the key or hash that its index is on."""

    name: str
    columns: Schema
    key: tuple[str, ...] | None
    hashed: tuple[str, ...] = ()
    state: str | None = None

    @property
    def key_columns(self) -> Schema:
        """The columns of the key."""
        return tuple(c for c in self.columns if c.name in (self.key or ()))
