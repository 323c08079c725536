"""`.index` (`offset`), `.timeindex` (`time`) and `.txnindex` (`transaction`): their entries, Kafka's warm and cold
search for one or millions of targets (`search_kernel`), and Kafka's checks (`abstract_index`).
"""
