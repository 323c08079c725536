"""`verify_index`: request, audits on executors, findings in the catalog, report."""
