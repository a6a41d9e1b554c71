"""whilst: simultaneous machine translation, from parallel text to a live translator."""

import os

__version__ = "0.1.0"

# Threads that wait must sleep, not spin: two trainings on two cores took eight times as long as one by one before.
# It has to be set before torch is loaded, and whoever sets it himself keeps his setting.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
