"""`python -m cfeval_cli` is `cfeval`."""

from cfeval_cli.cli.main import main

main()
