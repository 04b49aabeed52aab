"""ExecuTorch programs in memory: what the planner believed, beside what the `.pte` of it says.

    document = allocsim.executorch.document_of(edge.to_executorch())

executorch and torch are imported when `document_of` is called, and by nothing else here.
"""

from allocsim.executorch.planned_program import document_of

__all__ = ["document_of"]
