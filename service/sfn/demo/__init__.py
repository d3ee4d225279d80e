"""The demonstration `sfn demo`: a real catalog, the listener and a table on one machine.

`demo` has the steps (`run_demo`) and prints them (`Narrator`); start reading there. `environment` starts the catalog
server (`RestCatalogServer`) and the listener (`running_service`), and has the client of the tables (`Lake`). Tests use
these parts, too.
"""
