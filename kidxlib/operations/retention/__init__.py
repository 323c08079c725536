"""`retention`: plans of what Kafka's retention would delete. What is asked, and the configurations that it rests on,
are in `retention_request`. `segments_to_plan` reads the rows of topics and segments from the catalog, and refuses those
that cannot be planned. What a worker does with the rows of a share is in `plan_work`: it splits them into partitions,
decides on each by a rule, reads time indexes, and makes the rows of the plan. `make_plan` has the steps, and records
and tells the plan; a later run applies it (`apply`).
"""
