"""REST doors of this app."""
