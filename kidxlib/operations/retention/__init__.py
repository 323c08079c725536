"""`retention`: workers plan what Kafka's retention would delete, the plan is recorded, and a later run applies it."""
