"""The command line `sfn`: one file a command.

Commands import what they need when they run: `sfn --version` should not wait for a web server.
"""
