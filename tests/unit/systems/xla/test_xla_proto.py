"""XLA's HloProto: it says what the texts say; the wire format, and what is refused."""

import shutil

import pytest
from columns import difference
from plan_laws import DAMAGED, PLANS, law_of_damage

from allocsim import systems
from allocsim.errors import DocumentError
from allocsim.formats.protobuf import Message
from allocsim.systems.xla import xla_dump

FOLDER = PLANS / "xla" / "live"


def proto():
    return next(FOLDER.glob("*.hlo.pb"))


def test_a_proto_says_what_the_texts_of_its_module_say(tmp_path):
    """Programs, plans and beliefs are the same; the phis of the text are the ones that are told from the proto."""
    texts = systems.load(FOLDER)
    for source in (proto(), next(FOLDER.glob("*live-range.txt"))):
        shutil.copy(source, tmp_path)

    assert difference(systems.load(tmp_path), texts) is None
    assert difference(systems.load(tmp_path / proto().name), texts) is None


def test_a_proto_is_told_by_its_content(tmp_path):
    path = tmp_path / "anything"
    shutil.copy(proto(), path)

    assert systems.detect(path.read_bytes()[: systems.HEAD]) == "xla"
    assert systems.load(path).problems == ()  # no live ranges beside it


def test_a_module_without_an_assignment_has_no_plan_here():
    data = proto().read_bytes()  # its first field is the module, of a size of two bytes
    size = (data[1] & 0x7F) | (data[2] & 0x7F) << 7
    with pytest.raises(DocumentError, match="no plan here: it has no buffer assignment"):
        xla_dump.loads(data[: 3 + size], "x.hlo.pb")


@DAMAGED
def test_damaged_protos_end_in_one_line(times):
    read, refused = law_of_damage(proto().read_bytes(), xla_dump.loads, seed=6, times=times)

    assert read > 0
    assert refused > 0


def test_fields_are_read_as_the_encoding_says():
    data = b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01\x22\x06\x03\x8e\x02\x9e\xa7\x05\x20\x07\x08\x01"
    message = Message(data)

    assert message.number(1) == 1  # the last of two
    assert message.text(2) == "testing"
    assert message.message(3).number(1) == 150
    assert message.numbers(4) == [3, 270, 86942, 7]  # packed and not
    assert (message.number(9), message.text(9), message.numbers(9), list(message.messages(9))) == (0, "", [], [])


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"\x08", "byte 1: a number ends beyond its message"),
        (b"\x08" + b"\x80" * 11, "a number has more than ten bytes"),
        (b"\x12\x05ab", "field 2 ends beyond its message, which ends at 4"),
        (b"\x0d\x00", "field 1 ends beyond its message"),
        (b"\x0b", "there is no field of wire type 3"),
    ],
)
def test_what_breaks_the_encoding_is_said_with_its_byte(data, rule):
    with pytest.raises(ValueError, match=rule):
        Message(data)


def test_a_field_of_another_kind_is_said():
    message = Message(b"\x08\x01\x12\x01a")

    for ask in (
        lambda: message.text(1),
        lambda: message.number(2),
        lambda: message.message(1),
        lambda: list(message.messages(1)),
    ):
        with pytest.raises(ValueError, match="of the message that begins here is not"):
            ask()
