"""The whole life of a table, for each naming: what readers see after all that can happen to it."""
