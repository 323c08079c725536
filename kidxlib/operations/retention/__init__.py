"""`retention`: workers (`plan_work`) plan what Kafka's retention would delete of the `segments_to_plan` (rows and
policies, and what cannot be planned), `make_plan` records and tells the plan, and a later run applies it (`apply`).
"""
