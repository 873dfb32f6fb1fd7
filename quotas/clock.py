"""Clusters whose clock is moved by hand in this thread: cluster id to the instant it shows."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from datetime import datetime
from types import MappingProxyType

stopped_clocks: ContextVar[Mapping[int, datetime]] = ContextVar("stopped_clocks", default=MappingProxyType({}))
