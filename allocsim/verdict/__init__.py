"""Make the verdict: name each mistake, the party at fault, the overwritten bytes, and the cure.

    verdict = judge(evidence)

The module `judging` makes a verdict from evidence. Each name of this package is imported at its
first use, because the command `check` needs no verdict if a document has no violations.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
