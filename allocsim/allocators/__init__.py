"""Planners: beliefs and placements, by name."""
