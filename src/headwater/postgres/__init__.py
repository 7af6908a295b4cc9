"""The PostgreSQL engine: rendering, capture, storage and refresh in the database itself."""
