"""Which segments Kafka's retention deletes, which configuration decides that (policy files, or the output of Kafka's
tools), and how a plan is applied.
"""
