"""Terms and certificates as text: words and whole numbers, separated by blanks.

    terms        "allocsim-terms" 1 "depth" N "grain" N "contents" list(access) "nodes" list(node) "end"
    access       ident space base start length width list(count stride)
    node         "op" chain list(after) list(access) list(access) list(operand result strength)
                 "same" chain list(after) list(access access)
                 "hold" chain list(after) list(access access)
    certificate  "allocsim-certificate" 1 "claims" list(list(list(piece))) "clocks" list(list(chain node)) "end"
    piece        start length node result shift

A list is its length, then its items. The lists of claims and clocks have an item for each node, in
order; there are no clocks where all nodes are on one chain. A node and what is claimed of it have a
line of their own, and `terms` and `claims` say what each number means. `proof/main.ml` reads this.

What this module does not see: what any of it means.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TypeVar

from allocsim.certificates.claims import Certificate
from allocsim.certificates.terms import Access, RunNode, Terms

Item = TypeVar("Item")


def terms_text(terms: Terms) -> str:
    """Return terms as text."""
    lines = [f"allocsim-terms 1 depth {terms.depth} grain {terms.grain}"]
    lines += ["contents", _list(_access, terms.contents), "nodes", str(len(terms.nodes)), *map(_node, terms.nodes)]
    return "\n".join([*lines, "end", ""])


def certificate_text(certificate: Certificate) -> str:
    """Return a certificate as text."""
    lines = ["allocsim-certificate 1", f"claims {len(certificate.claims)}"]
    lines += [_list(lambda pieces: _list(_numbers, pieces), node) for node in certificate.claims]
    lines += [f"clocks {len(certificate.clocks)}", *(_list(_numbers, clock) for clock in certificate.clocks)]
    return "\n".join([*lines, "end", ""])


def _list(write: Callable[[Item], str], items: Sequence[Item]) -> str:
    return " ".join([str(len(items)), *map(write, items)])


def _numbers(items: Iterable[int]) -> str:
    return " ".join(map(str, items))


@cache
def _access(access: Access) -> str:
    return f"{_numbers(access[:6])} {_list(_numbers, access.dims)}"


def _node(node: RunNode) -> str:
    return " ".join(_words(node))


def _words(node: RunNode) -> Iterator[str]:
    yield f"{node.kind} {node.chain} {_list(str, node.after)}"
    if node.kind != "op":
        yield _list(lambda pair: " ".join(map(_access, pair)), list(zip(node.operands, node.results, strict=True)))
        return
    yield _list(_access, node.operands)
    yield _list(_access, node.results)
    yield _list(lambda promise: " ".join(map(str, promise)), node.promises)
