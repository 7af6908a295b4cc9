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
    partition: tuple[str, ...] = ()  # what the rows of a touched key are found by
    kept: tuple[str, ...] = ()  # the states of aggregates inside
    is_small: bool = False  # beside the change at hand: all of it is read sooner than looked up
    has_long_keys: bool = False  # some value of a key is too long for an index but a hash

    @property
    def key_columns(self) -> Schema:
        """The columns of the key."""
        return tuple(c for c in self.columns if c.name in (self.key or ()))
