"""Clusters to measure on, and how they are measured; `manage.py bench NAME` runs them."""
