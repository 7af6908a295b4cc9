"""The operator tree: frozen nodes over Z-sets, with no input or output of their own."""
