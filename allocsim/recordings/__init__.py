"""Recordings of what an allocator gave out while a program ran, judged at any length.

    from allocsim.recordings import judge

    for finding in judge(events).findings:
        print(finding.class_, finding.party, finding.cure)

Events are those of `allocsim trace` (`allocsim.programs.allocator_trace`). `by_window` has the way
from events to findings, `screen` what is looked at closely, `book` the allocator's own count.

What this package does not see: how events come about, and files.
"""

from allocsim.recordings.by_window import WINDOW, WINDOWS, JudgedRecording, judge
from allocsim.recordings.in_its_words import RecordedFault

__all__ = ["WINDOW", "WINDOWS", "JudgedRecording", "RecordedFault", "judge"]
