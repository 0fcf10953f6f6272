"""Ground truths: definitions of the importance of features to a model, one file each."""
