"""Which metric may be believed, over many data sets, judges, truths and seeds."""
