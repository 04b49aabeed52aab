"""`allocsim schema`: print the JSON Schema of the native document."""

from allocsim.cli.output import print_json
from allocsim.document import schema as document_schema


def schema() -> int:
    """`allocsim schema > schema.json` makes the file that editors and validators take.

    Example: allocsim schema
    """
    print_json(document_schema())
    return 0
