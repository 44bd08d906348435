"""A module that raises, when it is imported, what is no `Exception`."""

raise KeyboardInterrupt
