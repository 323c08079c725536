"""Options that commands and jobs share, and the types of their values."""
