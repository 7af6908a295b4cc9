"""The Spark engine: turns a Δ tree over the traces of a lake into a change for PostgreSQL."""
