"""Objects of an S3 store: what they are asked, and how."""
