"""`python -m dtq`: the same as the `dtq` command."""

import sys

from dtq.cli import main

if __name__ == "__main__":
    sys.exit(main())
