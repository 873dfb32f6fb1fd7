"""Replay of a recorded cluster log through the real services, cycle and simulated engine, on a virtual clock."""
