"""Studies of many runs: sweeps, the paper's tables, the atlas and the regret of the answer."""
