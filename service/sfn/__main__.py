"""`python -m sfn`: the command line."""

from sfn.cli.main import main

main()
