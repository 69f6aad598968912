"""`python -m alipes`: the same door as the `alipes` command."""

from alipes.cli.main import enter

if __name__ == "__main__":
    enter()
