"""Which BLAS kernels are asked for."""

import pytest

from allocsim.processor import VARIABLE, prefer

FULL = "processor : 0\nflags\t\t: fpu avx2 avx512f avx512cd avx512bw avx512dq avx512vl\n"


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (FULL, {}, {VARIABLE: "SkylakeX"}),
        (FULL, {VARIABLE: "Haswell"}, {VARIABLE: "Haswell"}),
        (FULL.replace(" avx512vl", ""), {}, {}),
        ("model name : none\n", {}, {}),
        (None, {}, {}),
    ],
    ids=["all flags", "the user's choice", "one flag short", "no flags", "no description"],
)
def test_avx_512_kernels_are_asked_for_only_where_all_they_need_is_there(tmp_path, text, before, after):
    """The user's own choice stays; what cannot be read changes nothing."""
    description = tmp_path / "cpuinfo"
    if text is not None:
        description.write_text(text)
    environment = dict(before)
    prefer(environment, description)

    assert environment == after
