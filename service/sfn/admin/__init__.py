"""Admin API of the listener: status, dead letters, sweeps and commands about whole catalogs, under `/admin/v1`.

`app.routes` returns the router. `routes` has the routes and their context (`AdminContext`), `dead_letters` the routes
to dead letters, and `schemas` the JSON models that the command line shares.

Start with `app.routes`.
"""
