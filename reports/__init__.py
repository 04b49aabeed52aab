"""Figures and report folders: the only place that draws."""
