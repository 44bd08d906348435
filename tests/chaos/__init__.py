"""Chaos: producers, an operator and a pool of workers run while everything is killed, stopped, cut off and refused."""
