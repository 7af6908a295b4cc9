"""Differentiation: from a view's operator tree to the tree that computes its change."""
