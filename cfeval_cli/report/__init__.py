"""What people read: tables made from the stored results."""
