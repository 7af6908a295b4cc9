"""From SQL text to an operator tree: the server analyses, we lower."""
