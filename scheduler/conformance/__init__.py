"""Conformance: recorded scheduling situations of another scheduler, run through our core with settings of their own."""
