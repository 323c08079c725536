"""Objects of an S3 store, and the requests for them."""
