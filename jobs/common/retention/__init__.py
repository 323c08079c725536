"""`retention`: request, plans on executors, a plan that is applied, report."""
