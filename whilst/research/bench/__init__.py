"""Speed measurements (`whilst bench`): training, decoding, the CPU engine, the server.

They print and write figures; tests only check that they run.
"""
