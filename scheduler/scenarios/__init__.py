"""Scenarios: whole situations as data, played through the real services, cycle and engine on a clock moved by hand."""
