"""Names of signals, and how a process ended, for people.

What this module does not see: who sent one.
"""

import signal


def signal_name(number: int) -> str:
    """Return the name of a signal, or its number where it has none (real-time signals)."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def how_ended(code: int) -> str:
    """Return how a process ended, from its exit status: negative for a signal."""
    return signal_name(-code) if code < 0 else f"exit status {code}"


__all__ = ["how_ended", "signal_name"]
