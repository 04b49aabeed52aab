"""Reads TorchInductor's wrapper in C++. `aoti_compile_and_package` puts this text into a `.pt2`
package (`*.wrapper.cpp`); the option `cpp_wrapper` writes it into the Python wrapper.

The C++ wrapper is the same program as the Python wrapper. Each line is therefore rewritten into
Python, and `allocsim.systems.torch.inductor` reads the result. Errors name the C++ line.

| C++ | Python |
|---|---|
| `auto arg0_1 = std::move(inputs[0]);`, `auto& w = constants_->at(0);` | an input; constants are inputs that follow all other inputs |
| `aoti_torch_empty_strided(.., &buf0_handle)` | `buf0 = empty_strided(..)` |
| `aoti_torch__alloc_from_pool(pool0, .., &buf0_handle)` | `buf0 = alloc_from_pool(pool0, ..)` |
| `auto buf1 = std::move(buf0);  // reuse` | `buf1 = buf0; del buf0` |
| `buf0.reset();` | `del buf0` |
| `cpp_fused_0((const float*)(buf0.data_ptr()), ..)` | `cpp_fused_0(buf0, ..)` |
| `aoti_torch_cpu_mm_out(buf1, buf0, ..)` | `extern_kernels.mm(buf0, .., out=buf1)` |
| `aoti_torch_cpu_sort_stable(buf0, .., &buf2_handle, &buf3_handle)` | `made_37 = torch.ops.aten.sort_stable(buf0, ..)` for a call on line 37, and `buf2 = made_37[0]` |
| `output_handles[0] = buf1.release();` | one element of the returned tuple |

In a package, the sizes of inputs come from the wrapper's assertions; otherwise they come from its
`get_args`. The sizes of constants come from the wrapper's constructor. Any other line is refused.

What this module does not see: folded constants (`_const_run_impl`), and everything that
`allocsim.systems.torch.inductor` does not see.
"""

import re
from collections.abc import Iterator
from keyword import iskeyword
from typing import Final

from allocsim.allowances import metered
from allocsim.errors import DocumentError
from allocsim.files.gate import zipped
from allocsim.model import Document
from allocsim.systems.torch import inductor

PACKAGE: Final = b"PK\x03\x04"
"""The first bytes of a zip archive."""

DTYPE: Final = "cached_torch_dtype_"

_MADE: Final = {
    "aoti_torch_empty_strided": ("empty_strided", (1, 2, 3)),
    "aoti_torch__alloc_from_pool": ("alloc_from_pool", (0, 1, 2, 4, 5)),
}
"""C++ allocation -> Python function, and the positions of the arguments that are passed to the
Python function. The last argument of the C++ call is the handle of the new tensor."""

BRACKETS: Final = 200
"""The most opening parentheses in one statement; a statement with more is refused."""

WRAPPER: Final = ".wrapper.cpp"
"""The ending of the file name of the wrapper in a package."""

_ENTRY: Final = re.compile(r"void (?:AOTInductorModel::run_impl|inductor_entry_impl)\(")
_KERNEL: Final = re.compile(r'extern "C"\s+void\s+(\w+)(\([^()]*\));')
_CONSTANT: Final = re.compile(r"^ *constants_info_\[(\d+)\]\.(name|dtype|shape|stride) = (.*);$", re.MULTILINE)
_ASSERTED: Final = re.compile(r'assert_size_stride\((\w+), (\{[^{}]*\}), (\{[^{}]*\}), "([^"]*)"\)')
_DTYPE: Final = re.compile(r"\b(\w+)_expected_dtype = aoti_torch_dtype_(\w+)\(\)")
_GIVEN: Final = re.compile(r"^ +(\w+ = rand_strided\(.*\))$", re.MULTILINE)
_SIZES: Final = re.compile(r"(?:static constexpr|const) int64_t (?:(\w+)\[\] = (\{.*\})|\*(\w+)=nullptr)$")
_INPUT: Final = re.compile(
    r"(?:\[\[maybe_unused\]\] )?auto&? (\w+) = (?:std::move\(inputs\[(\d{1,6})\]\)|constants_->at\((\d{1,6})\))$"
)
_TENSOR: Final = re.compile(r"(?:auto (\w+) = )?RAIIAtenTensorHandle(?: (\w+))?\((\w+)\)$")
_NAMED: Final = re.compile(r"auto (\w+) = (.*)$")
_RESULT: Final = re.compile(r"output_handles\[\d+\] = (.*?)(?:\.release\(\))?$")
_RESULT_AGAIN: Final = re.compile(r"output_handles\[(\d{1,6})\]$")
_RESET: Final = re.compile(r"(\w+)\.reset\(\)$")
_CHECKED: Final = re.compile(r"AOTI_TORCH_ERROR_CODE_CHECK\((.*)\)$")
_CALL: Final = re.compile(r"(\w+)\((.*)\)$")
_LIBRARY: Final = re.compile(r"aoti_torch_(?:cpu|cuda|xpu|mps)_(\w+?)(_out)?$")
_HANDLE: Final = re.compile(r"&(\w+_handle)$")
_ARRAY: Final = re.compile(r"\{([^{}]*)\}\.cbegin\(\)$")
_CAST: Final = re.compile(r"\((?:const )?[\w:]+\*\)\((.*)\.data_ptr\(\)\)$")
_OWNED: Final = re.compile(
    r"(?:wrap_with_raii_handle_if_needed|RAIIAtenTensorHandle|&temporary_reference)\((.*?)(?:\.get\(\))?\)$"
)
_MOVED: Final = re.compile(r"std::move\((\w+)\)$")
_VIEW: Final = re.compile(r"reinterpret_tensor_wrapper\((.*)\)$")
_NUMBER: Final = re.compile(r"(-?\d+(?:\.\d*)?(?:e-?\d+)?)[LlFf]*$")

SKIPPED: Final = re.compile(
    r"(?:\[\[maybe_unused\]\] )?auto& kernels\b|__check_inputs_outputs\(|auto inputs = steal_from_raw_handles|"
    r"inputs\.clear\(\)|AtenTensorHandle \w+$|py::gil_scoped_release|"
    r"if \(_check_aoti_runtime_check_inputs_env\(\)\)|assert_size_stride\(|\}|(?:\w+_t|bool|double|float) var_\d+ = [\w.+-]+$"
)
"""Statements that access no tensor: declarations, names of handles, and checks."""


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a C++ wrapper or an AOTInductor package."""
    text = b"torch/csrc/inductor/aoti_include/" in head or b"torch/csrc/inductor/cpp_wrapper/" in head
    return text or (head.startswith(PACKAGE) and b"aotinductor/" in head)


@metered
def loads(data: bytes, source: str = "wrapper") -> Document:
    """Return the program and plan of a C++ wrapper, or of the wrapper in a package.

    Raises DocumentError, which names the line and the violated rule. O(size of the text).
    """
    text = zipped(data, source, WRAPPER) if data.startswith(PACKAGE) else data
    try:
        lines = text.decode().splitlines()
    except UnicodeDecodeError:
        raise DocumentError(source, "", "is not text in UTF-8") from None
    return inductor.loads(_Rewritten(lines, source).text().encode(), source)


class _Rewritten:
    """Rewrites a C++ wrapper into Python, statement by statement."""

    def __init__(self, lines: list[str], source: str) -> None:
        self.lines, self.source = lines, source
        self.sizes: dict[str, str] = {}
        """Name of a C++ array of sizes -> the text of the Python tuple with these sizes."""
        self.inputs: dict[tuple[bool, int], str] = {}
        """(whether an input is a constant, its number) -> the name of the input."""
        self.handles: dict[str, str] = {}
        """Handle -> the Python expression that makes its tensor, until the tensor gets a name."""
        self.results: list[str] = []
        self.at = 0

    def text(self) -> str:
        """Return the wrapper in Python; each statement keeps its line number."""
        lines = self.lines
        begins = next((at for at, line in enumerate(lines) if _ENTRY.match(line)), len(lines))
        opened = next((at for at in range(begins, len(lines)) if lines[at].rstrip().endswith("{")), len(lines))
        ends = next((at for at in range(opened, len(lines)) if lines[at].startswith("}")), None)
        if ends is None or opened == begins:
            raise DocumentError(self.source, "", "no plan here: it has no complete function `run_impl`")
        rows = [""] * len(lines)
        for self.at in range(opened + 1, ends):
            line = lines[self.at].partition("//")[0].strip()
            if not SKIPPED.match(line):
                rows[self.at] = "; ".join(filter(None, map(self.statement, filter(None, line.split(";")))))
        names = [self.inputs[key] for key in sorted(self.inputs)]
        rows[begins] = "def call(args):"
        rows[opened] = f"{', '.join(names)}, = args" if names else "pass"
        rows[ends] = f"return ({', '.join([*self.results, ''])})"
        rows[opened : ends + 1] = [f" {row}" for row in rows[opened : ends + 1]]
        rows[0] = "; ".join(_told("\n".join(lines)))
        return "\n".join(rows)

    def statement(self, text: str) -> str:
        """Return the Python form of a C++ statement, or "" if the statement accesses no tensor."""
        text = re.sub(r"std::array<[^<>]*>", "", text.strip())
        if text.count("(") > BRACKETS:
            raise self.refuse(text)
        if found := _CHECKED.match(text):
            text = found[1]
        if SKIPPED.match(text):
            return ""
        if found := _SIZES.match(text):
            self.sizes[found[1] or found[3]] = _tuple(found[2] or "{}")
        elif found := _INPUT.match(text):
            self.inputs[found[2] is None, int(found[2] or found[3])] = found[1]
        elif found := _RESULT.match(text):
            self.results.append(self.word(found[1]))
        elif found := _RESET.match(text):
            return f"del {found[1]}"
        elif (found := _TENSOR.match(text)) and found[3] in self.handles:
            return f"{found[1] or found[2]} = {self.handles.pop(found[3])}"
        elif found := _NAMED.match(text):
            moved = _MOVED.match(found[2])
            return f"{found[1]} = {self.word(found[2])}{f'; del {moved[1]}' if moved else ''}"
        elif found := _CALL.match(text):
            return self.call(found[1], _parts(found[2]))
        else:
            raise self.refuse(text)
        return ""

    def call(self, name: str, parts: list[str]) -> str:
        """Return a C++ call in Python, or "" for an allocation, which is kept in `handles`."""
        if name in _MADE:
            made, places = _MADE[name]
            if len(parts) <= places[-1] + 1:
                raise self.refuse(name)
            self.handles[parts[-1].removeprefix("&")] = f"{made}({', '.join(self.word(parts[at]) for at in places)})"
            return ""
        library, given = _LIBRARY.match(name), [found[1] for part in parts if (found := _HANDLE.match(part))]
        words = [self.word(part) for part in parts if not _HANDLE.match(part)]
        if library and given and not library[2]:
            self.handles |= {handle: f"made_{self.at + 1}[{place}]" for place, handle in enumerate(given)}
            return f"made_{self.at + 1} = torch.ops.aten.{library[1]}({', '.join(words)})"
        if library and library[2] and words[:1] == words[1:2] and library[1].startswith(("scatter", "index_put")):
            return f"aten.{library[1]}_({', '.join(words[1:])})"
        if library and library[2] and words:
            return f"extern_kernels.{library[1]}({', '.join([*words[1:], ''])}out={words[0]})"
        return f"{name}({', '.join(words)})"

    def word(self, text: str) -> str:
        """Return the Python form of an operand: a tensor, a view, a number, sizes or a dtype."""
        text = text.strip()
        if text in self.sizes:
            return self.sizes[text]
        if (found := _RESULT_AGAIN.match(text)) and int(found[1]) < len(self.results):
            return self.results[int(found[1])]
        for inside in (_CAST, _OWNED, _MOVED):
            if found := inside.match(text):
                return self.word(found[1])
        if found := _VIEW.match(text):
            tensor, *layout = _parts(found[1])
            return f"reinterpret_tensor({', '.join(map(self.word, (tensor, *layout[1:])))})"
        if found := _ARRAY.match(text):
            return f"[{', '.join(map(self.word, filter(None, _parts(found[1]))))}]"
        if found := _NUMBER.match(text):
            return found[1]
        if re.match(r'&var_\d+$|"\w*"$', text):  # a pointer to a number, or a string literal
            return "None"
        if text.startswith(DTYPE):
            return f"torch.{text.removeprefix(DTYPE)}"
        if text.isidentifier() and not iskeyword(text):
            return "None" if text == "nullptr" else text
        raise self.refuse(text)

    def refuse(self, text: str) -> DocumentError:
        return DocumentError(self.source, f"line {self.at + 1}", f"{text[:60]!r} is not a supported statement")


def _told(text: str) -> Iterator[str]:
    """Yield Python statements that declare kernels and give the sizes of inputs and constants."""
    yield "import torch._inductor.async_compile"
    for name, parameters in _KERNEL.findall(text):
        declared = f"void kernel{' '.join(parameters.split())}"
        yield f"{name} = cpp_pybinding({declared!r})"
    yield from _GIVEN.findall(text)
    dtypes = dict(_DTYPE.findall(text))
    for name, shape, strides, label in _ASSERTED.findall(text):
        if label != "input":
            yield f"assert_size_stride({name}, {_tuple(shape)}, {_tuple(strides)})"
        elif name in dtypes:
            yield f"{name} = rand_strided({_tuple(shape)}, {_tuple(strides)}, dtype=torch.{dtypes[name]})"
    constants: dict[str, dict[str, str]] = {}
    for number, word, value in _CONSTANT.findall(text):
        constants.setdefault(number, {})[word] = value
    for row in constants.values():
        if len(row) == 4:
            sizes, name = f"{_tuple(row['shape'])}, {_tuple(row['stride'])}", row["name"].strip('"')
            yield f"{name} = rand_strided({sizes}, dtype=torch.{row['dtype'].removeprefix(DTYPE)})"


def _tuple(text: str) -> str:
    """Return the Python tuple of a C++ list: `(4, 16, )` for `{4L, 16L}`."""
    words = [word.strip().removesuffix("L") for word in text.strip("{} ").split(",")]
    return f"({', '.join([*filter(None, words), ''])})"


def _parts(text: str) -> list[str]:
    """Return the arguments of a call, split at the commas outside of inner brackets."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "({[") - (letter in ")}]")
        if letter == "," and not depth:
            parts.append(text[begin:at].strip())
            begin = at + 1
    return [*parts, text[begin:].strip()]


__all__ = ["PACKAGE", "WRAPPER", "loads", "looks_like"]
