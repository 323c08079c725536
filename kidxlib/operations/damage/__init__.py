"""Damage that a catalog knows of, what audits have last found, and what somebody has accepted."""
