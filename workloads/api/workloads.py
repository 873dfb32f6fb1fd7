"""Workloads: submission, everything that can be done to one, and why it waits."""

from __future__ import annotations
