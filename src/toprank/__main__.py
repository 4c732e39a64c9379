"""Run the command `toprank` with `python -m toprank`."""

from toprank.cli.main import run

run()
