"""Measure the quality and latency of policies: traces, metrics, records, reports, figures, the paper's numbers.

Reports read records only. Other packages use `evaluate.evaluate_run`, `record.rescore` and `report.report`.
"""
