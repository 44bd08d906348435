"""Benchmarks of dtq: each measures beside what bare Redis clients reach in the same run, and prints one JSON object."""
