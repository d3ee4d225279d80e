"""A real catalog, the service and a table on one machine: what `sfn demo` shows and what tests stand on."""
