"""Models, and the gate through which everything else sees them."""
