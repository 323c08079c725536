"""What a build does for the tables once all is recorded: files that are too many become few, where that pays."""
