"""`python -m alipes`: the same as the `alipes` command."""

from alipes.cli.main import run_and_exit

if __name__ == "__main__":
    run_and_exit()
