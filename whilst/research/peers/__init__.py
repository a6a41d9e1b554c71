"""Speed beside other toolkits (`whilst bench peers`). bench.py runs the workers, each with the Python of its peer.

Workers are run by their paths, and exchange files with bench.py. They import nothing of whilst but what they time.
"""
