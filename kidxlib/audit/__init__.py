"""What is wrong with logs and index files, as findings with a verdict, a reason and a consequence: of a segment's own
files (`segment`), of a partition as a whole (`partition`) and its logs together (`partition_logs`), and of offsets that
are in no log (`gaps`). The audit also simulates what a broker does with them at its next start. `rows` makes rows of
all findings.
"""
