"""The atlas: which metrics agree with the ground truth, over many data sets, judges, truths and seeds."""
