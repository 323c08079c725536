"""The calls that `import kidxlib` gives besides classes: each does in one process what the commands do. `read` reads
and counts records; `partition` opens one partition, and decides by its policy what retention deletes; `audit_directory`
audits a log dir as `kidx verify` does; `recover_directory` makes the index files of a log or of a log dir, as Kafka's
recovery does.
"""
