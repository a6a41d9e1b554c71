"""The method of the paper: binary search for reads, and the labels that agents learn from.

Knows neither decoding nor training. Others use `binary_search` and `labels.find_labels`.
"""
