"""Names of signals, for people.

What this module does not see: who sent one.
"""

import signal


def signal_name(number: int) -> str:
    """Return the name of a signal, or its number where it has none (real-time signals)."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


__all__ = ["signal_name"]
