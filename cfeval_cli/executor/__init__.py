"""Where the work on instances is done."""
