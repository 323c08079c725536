"""An audit, from the listing to the findings in the catalog: `kidx verify` and the job verify_index. `audit` has the
steps, and records the findings; `run_audit` has workers do the reading. `budget` chooses partitions where not all are
to be read, `accepted` sums up by what somebody has accepted, and `broken` serves repairs without a catalog.
"""
