"""From directories to index files. `source` says what a source is (a log dir, a partition's directory or a bucket),
where its logs and index files are, and what the options that name these mean. `listing` lists partitions, segments and
index directories; `listed_segments` is the table of the segments found. `plan` has a run's `Plan`: these segments,
their partitions, and the tasks of workers. `changes` compares a plan with the catalog and the index files that are
there; `known_segments` matches it with the segments that the catalog knows. `bins` shares segments out among cores.
`segments` scans logs and publishes their indexes; `finish_partition` folds the segments of a partition
(`UnfinishedSegment`), and publishes what depends on all of them. `build_counts` counts what a build read and wrote,
problems and unknown facts.
"""
