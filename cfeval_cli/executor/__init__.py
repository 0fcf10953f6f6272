"""Executors: they compute results for instances in this process, in worker processes or on a cluster."""
