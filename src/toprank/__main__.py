"""`python -m toprank` is the command `toprank`."""

from toprank.cli.main import run

run()
