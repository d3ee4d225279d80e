"""`python -m sfn`: the command line."""

from sfn.cli import main

main()
