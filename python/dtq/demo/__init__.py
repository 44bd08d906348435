"""The census: what `dtq demo` runs, one task for each source file of the running Python's standard library."""
