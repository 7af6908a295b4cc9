"""Tests; a package, so that test modules can import `tests.servers` and `tests.scale`."""
