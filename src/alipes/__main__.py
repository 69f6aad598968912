"""`python -m alipes`: the same door as the `alipes` command."""

import sys

from alipes.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
