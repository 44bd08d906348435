"""The census of the standard library: the same as `dtq demo`, for a clone that has not installed the command."""

import sys

from dtq.cli import main

if __name__ == "__main__":
    sys.exit(main(["demo", *sys.argv[1:]]))
