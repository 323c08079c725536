"""Measured savings: how many bytes a producer with a larger `batch.size` or with another codec would have written.

Of each topic some batches are read, in runs of consecutive ones from segments all over the topic, and their records are
laid down again as Java's producer does it, with a `linger.ms` that lets batches fill: records of one producer id go
together, and without ids those of a partition; batches are closed where the producer closes them, compressed by the
codec's own library at Kafka's default level, and counted with their headers. A transaction's end closes a batch. What
was measured are the records that were read, and nothing is said of others. Where a topic has few of them, larger
batches do not fill: `full_batches` says how many did.

`batch.size` counts compressed bytes, as the producer estimates them by the batches that it has written before. Its
estimate jumps up by 0.05 at the least and goes down by 0.005 a batch, so batches are a little smaller than they may be.
Producers that have run for a while are assumed. Compared with Java's producer and a real broker, bytes and batches were
within 4 % for each codec. Librdkafka counts bytes before they are compressed, so of its batches only those without a
codec are alike.

A batch of a topic with `LogAppendTime` has the broker's time alone. The producers' own times, which take a byte or two
more of each record, are not known.
"""
