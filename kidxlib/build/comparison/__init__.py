"""The parts of a comparison with the catalog: which segments are unchanged, and which are missing."""
