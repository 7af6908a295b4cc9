"""The verbs: what Python, the command line and SQL all call."""

from headwater.api.facade import Headwater, connect

__all__ = ["Headwater", "connect"]
