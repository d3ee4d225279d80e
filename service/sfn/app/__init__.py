"""The composition root: builds the parts of a process from the settings, and runs them.

Start reading with `service.run`, which runs the service, and `wiring.build_service`, which builds all of its parts as
an `AssembledService`. `catalogs` builds catalog clients, `storage` builds stores, `endpoints` builds the HTTP
endpoints and pull sources. `standalone` runs a facade without the service.

No other package names concrete adapters; the others depend on protocols.
"""
