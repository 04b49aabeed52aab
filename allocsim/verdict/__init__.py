"""The verdict: what went wrong, whose fault it is, who took whose bytes, and the cure.

    verdict = judge(evidence)

`judging` has the way from evidence to a verdict. Names are imported when they are first used: a
document in which nothing is wrong needs none of it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
