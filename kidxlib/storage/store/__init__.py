"""Objects of an S3 store (`s3`, by `client` where stored checksums and conditions are needed), and the `requests` for
them.
"""
