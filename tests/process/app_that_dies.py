"""A module that ends the process that imports it without a word."""

import os

os._exit(3)
