"""Objects of an S3 store. `s3` lists, reads and writes them, and has the options for delta-rs; `client` asks for what
pyarrow does not know: stored checksums, conditional writes, a bucket's versioning and lifecycle. `requests` counts,
limits and repeats requests.
"""
