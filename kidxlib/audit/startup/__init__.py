"""The start-up simulation: what a broker would do at its next start."""
