"""What the catalog knows to be damaged, and what of that somebody has accepted."""
