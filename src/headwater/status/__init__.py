"""The status page of the daemon: what the catalog says, as a page for people and JSON."""
