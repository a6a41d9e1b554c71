"""What a policy is worth: traces, latency and quality metrics, records, reports, figures, the numbers of the paper.

Reports read records only. Others use `evaluate.evaluate_run`, `record.rescore` and `report.report`.
"""
