"""An audit, from the listing to the findings in the catalog: `kidx verify` and the job verify_index. `audit_request`
says what is asked. `audit` has the steps, also of an audit before a repair; it records the findings, and gives the exit
code. `run_audit` has workers audit segments and partitions. Where not all logs are to be read, `budget` chooses
partitions, and has findings on those beyond it. `audit_summary` sums up an audit, its accepted findings, and the
catalog after it.
"""
