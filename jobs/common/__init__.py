"""What the jobs share: session, settings, distribution over executors, catalog tables, reports."""
