"""The document that sets each table and figure of the BS-SiMT paper beside our records (`whilst paper`).

Reads records and studies only; no number in it is typed in."""
