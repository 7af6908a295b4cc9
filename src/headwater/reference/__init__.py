"""A slow, obvious interpreter of operator trees: the oracle of the property tests."""
