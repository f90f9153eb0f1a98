"""`python -m qedtrio`."""

from qedtrio.cli import main

main()
