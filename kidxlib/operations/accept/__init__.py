"""Damage that somebody has looked at and accepted: recorded, withdrawn, and told from what nobody has looked at."""
