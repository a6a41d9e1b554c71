"""whilst: simultaneous machine translation, from parallel text to a live translator."""

import os

__version__ = "0.1.0"

# Threads that wait must sleep, not spin: with more of them than cores an update of the toy model took 2.8 s
# spinning and 0.3 s sleeping (alone on two cores, 0.10 s either way). It has to be set before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
