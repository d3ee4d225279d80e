"""The command line `sfn`.

`main` registers the commands; it is the place to start reading. Most commands have a module of their own (`status`,
`sweep`, `notify`, `dead_letters`, `read`, `check`). `options` has the options that commands share, `client` the HTTP
client of a running service (`ServiceClient`), and `render` what is printed (`Page`, `Line`, `Grid`).

Commands import what they need when they run, so that `sfn --version` does not load a web server.
"""
