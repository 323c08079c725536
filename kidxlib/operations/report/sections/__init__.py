"""The sections of a report, but for those that need more than SQL: each a function of answers, ready for JSON."""
