"""What is wrong with logs and index files: each `finding` is on one file, with a verdict, a reason and a consequence.
`segment` judges a segment's own log and its `.index` and `.timeindex`. `partition` audits a partition as a whole.
There, `partition_logs` judges its logs together: their order, leader epochs that go back, missing logs, logs that end
before what an `.index` knows, and those that `.swap` files replace. `gaps` finds offsets that are in no log (`Gap`),
and who knows them. `rows` makes rows of all findings, and `summary` has what they come to (`AuditSummary`): numbers,
files reported together (`FilesAlike`), failures of a start (`StartFailure`). The packages below audit single files,
simulate a broker's next start, and audit tiered storage.
"""
