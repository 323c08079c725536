"""The report: one HTML page of what a catalog knows of a fleet's segments, and the same numbers as JSON. `questions`
has the SQL, `sections` what comes of it, `attention` what stands first. `timeline` and `what_if` (other limits of
retention) are sections of their own, which ask for more than that.
"""
