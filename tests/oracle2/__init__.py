"""An oracle of version 2 of the native document, written from the text of the format alone.

`judge(document)` takes parsed JSON, version 1 or 2, and returns a `Judgement`: violations, warnings and stats. Memory is
followed cell by cell in dicts of Python; it is quadratic on purpose and shares no code with the judge. `key(record)` says
what a record is about, and `generate(seed)` makes small documents. Where the text leaves room, the header of the module
that had to choose says what it read.
"""

from .judging import Judgement, judge, key

__all__ = ["Judgement", "judge", "key"]
