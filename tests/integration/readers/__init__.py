"""Readers that are not ours, of a table that the service points at: what each shows after all that can happen."""
