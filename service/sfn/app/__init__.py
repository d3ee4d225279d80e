"""The composition root: builds the parts of a process from the settings, and runs them.

Start reading with `service.run`, which runs the service, and `wiring.build_service`, which builds all of its parts as
an `AssembledService`. `catalogs`, `storage` and `endpoints` build the adapters: catalogs, stores, and what the listener
serves. `standalone` runs a facade without the service.

No other package names concrete adapters; the others depend on protocols.
"""
