"""whilst: simultaneous machine translation, from parallel text to a live translator."""

__version__ = "0.1.0"
