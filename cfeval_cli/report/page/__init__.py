"""The report of a run or of a sweep: one HTML file, made from folders alone."""
