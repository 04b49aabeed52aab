"""The verdict: each mistake, the party at fault, which op overwrote which bytes, and the cure.

    verdict = judge(evidence)

The module `judging` makes a verdict from evidence. Each name of this package is imported at its
first use, because `check` of a document without violations makes no verdict.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
