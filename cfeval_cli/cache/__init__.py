"""What has been computed before."""
