"""How fast the project is, and next to what: see docs/performance.md."""
