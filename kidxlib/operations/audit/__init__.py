"""An audit, from the listing to the findings in the catalog: `kidx verify` and the job verify_index. `audit` has the
steps, and records the findings; `run_audit` has workers do the reading. `budget` chooses partitions where not all are
to be read, and `audit_summary` sums up, by what somebody has accepted.
"""
