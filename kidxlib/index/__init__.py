"""`.index`, `.timeindex` and `.txnindex`: their entries, Kafka's warm and cold search in them, one at a time or
millions, and Kafka's checks of them.
"""
