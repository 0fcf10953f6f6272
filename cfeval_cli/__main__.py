"""`python -m cfeval_cli` is `cfeval`."""

from cfeval_cli.commands.cli import main

main()
