"""Certificates: what every read of a document must find, in words that a proved checker reads.

    terms = terms_of(document)          # its programs, plans and runs, in the checker's words
    claims = certificate_of(terms)      # of every read: which op's write each of its bytes holds; of every op, a clock
    answer = certified(terms, claims)   # asks the checker of `proof/`, built by `make proof`

The theorem (`proof/Checker.v`, docs/theory.md) is about the checker. What it rests on and what no
machine proved is `terms` and `grammar`: from a document to the checker's terms, and to text.
`claims`, and the list of nodes that `joined` makes for them, are not trusted: a wrong claim is
refused.

What this package does not see: kernels, beliefs, and whether the judge found anything.
"""

from allocsim.certificates.claims import Certificate, Clock, certificate_of
from allocsim.certificates.grammar import certificate_text, terms_text
from allocsim.certificates.joined import Access, Joined, RunNode, joined
from allocsim.certificates.proved import ProvedAnswer, certified, checker
from allocsim.certificates.terms import Terms, terms_of

__all__ = [
    "Access",
    "Certificate",
    "Clock",
    "Joined",
    "ProvedAnswer",
    "RunNode",
    "Terms",
    "certificate_of",
    "certificate_text",
    "certified",
    "checker",
    "joined",
    "terms_of",
    "terms_text",
]
