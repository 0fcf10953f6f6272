"""Tables, plots, texts and pages, built from stored results."""
