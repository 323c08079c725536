"""Index and auxiliary files as they may be found, and what is to be said of each."""
