"""Engines run replicas on machines: simulated ones first of all."""
