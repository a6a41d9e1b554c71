"""The paper's method: binary search for reads, and the labels that the agent learns.

Independent of decoding and training. Others use `binary_search.search` and `labels.find_labels`.
"""
