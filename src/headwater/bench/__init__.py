"""Benchmarks: what a refresh and the capture of changes cost, against plain PostgreSQL."""
