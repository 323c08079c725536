"""Objects of an S3 store. `s3` lists, reads and writes them, and opens directories of Delta tables for delta-rs and
pyarrow; `client` asks for what pyarrow does not know: HEADs with stored checksums, conditional writes, a bucket's
versioning and lifecycle. `requests` counts, limits and repeats requests.
"""
