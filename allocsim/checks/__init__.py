"""The independent judge: static checks of plans, beliefs and events."""
