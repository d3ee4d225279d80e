"""Admin API of the listener: status, dead letters, sweeps and commands about whole catalogs, under `/admin/v1`.

Start with `admin.routes`: it has the handlers and their context, `AdminContext`. `dead_letters` has the handlers for
dead letters, `app` joins both into one router, and `schemas` has the JSON models, which the command line uses too.
"""
