"""`retention`: a plan of what Kafka's retention would delete, made by workers and recorded; and a plan applied."""
