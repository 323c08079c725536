"""Objects of an S3 store. `s3` lists, reads and writes them, and has what delta-rs and pyarrow need to open Delta
tables; `client` asks for what pyarrow does not know: HEADs with stored checksums, conditional writes, a bucket's
versioning and lifecycle. `requests` counts, limits and repeats requests.
"""
