"""`python -m perfaudit` is the `perfaudit` command."""

from perfaudit.cli import main

main()
