"""Ways to take features away, one file each."""
