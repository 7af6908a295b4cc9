"""The delta rules, one kind of operator per file; importing this package registers them all."""

from headwater.delta.rules import bilinear, keyed, linear

__all__ = ["bilinear", "keyed", "linear"]
