"""Chaos: a producer and a pool of workers run while processes and the server are killed, stopped and cut off."""
