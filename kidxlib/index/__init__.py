"""`.index`, `.timeindex` and `.txnindex`: their entries, Kafka's warm and cold search for one or millions of targets,
and Kafka's checks.
"""
