"""The cheapest cure moves one slot, or two, before every buffer gets bytes of its own: over several plans, beside other faults, within capacity."""

from dataclasses import replace

from allocsim.cure import few
from allocsim.cure.room import Rigour, rooms_of
from allocsim.judge.fast import check
from allocsim.model import Arena, Document, Role, Run
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.verdict import judge
from allocsim.verdict.causes import causes_of, charges_in
from allocsim.verdict.evidence import Evidence
from repro.small.words import belief, plan, program

KEPT = program("x = host.write; a = f x s; host.read a", roles={"s": Role.STATE})
CHAIN = program(
    "x = host.write; h = f x; y = f h; z = f y; o = g z h; host.read o", sizes="x=256 h=256 y=256 z=256 o=256"
)


def cure_of(document, place=0):
    return judge(Evidence(document=document)).causes[place].cure


def in_capacity(made, nbytes):
    return replace(made, arenas=(replace(made.arenas[0], capacity=nbytes), *made.arenas[1:]))


def over_state(slots="q=0 r=64 t=128", **run):
    """A plan that keeps s at 0, one of another program that lays q there, and the first again."""
    between = program("q = host.write; r = h q; t = h r; host.read t")
    first = plan(KEPT, "s=0 x=64 a=128")
    return Document.of(Run.of(first), Run.of(plan(between, slots), **run), Run.of(first))


def test_a_slot_over_the_state_of_another_plan_moves_off_it_alone():
    found = cure_of(over_state())
    assert found.words == ("place q at 128",)
    assert (found.nbytes, found.minimal, check(found.document).clean) == (0, True, True)


def test_a_state_moves_in_every_plan_that_has_it_and_off_all_bytes_of_other_plans():
    """q was told where to lie; s goes to where neither program has anything."""
    kept, between = (in_capacity(made, 320) for made in (KEPT, program("q = host.write; host.read q", sizes="q=256")))
    first, again = plan(kept, "s=0 x=64 a=128"), plan(kept, "s=0 x=128 a=64")
    document = Document.of(Run.of(first), Run.of(plan(between, "q=0", belief(between, fixed={0: 0}))), Run.of(again))
    found = cure_of(document)
    assert found.words == ("place s at 256",)
    assert check(found.document).clean


def test_a_cure_stands_beside_runs_that_do_not_wait():
    """The runs race on other bytes, which no slot alone brings right: that hides no cure of the state."""
    document = over_state("q=0 r=64 t=256", after=())
    verdict = judge(Evidence(document=document))
    (kept,) = [cause for cause in verdict.causes if cause.class_ == "C07"]
    assert [cause.class_ for cause in verdict.causes if cause is not kept] == ["C09"]
    assert kept.cure.words == ("place s at 192",)
    after = judge(Evidence(document=kept.cure.document)).causes
    assert [cause.class_ for cause in after] == ["C09"]


def test_a_slot_beyond_its_arena_goes_to_free_bytes_within_though_nobody_lies_where_it_is():
    made = in_capacity(program("x = host.write; a = f x; b = g a; c = h b a; host.read c"), 192)
    for believed in (None, belief(made)):
        document = Document.of(plan(made, "x=0 a=64 b=160 c=0", believed))
        found = cure_of(document)
        assert found.words == ("place b at 128",)
        assert check(found.document).clean


def test_a_slot_of_the_greatest_size_moves_who_lies_behind_it():
    b = ProgramBuilder("p", arenas=(Arena(name="cpu", alignment=1),))
    x, y, z = (
        b.value(name, b.buffer(name, 64, nbytes_range=ends), "f32", shape=(16,))
        for name, ends in zip("xyz", (None, (64, 128), None), strict=True)
    )
    b.op("host.write", [], [x])
    b.op("f", [x], [y])
    b.op("g", [y], [z])
    b.op("host.read", [z], [])
    found = cure_of(Document.of(plan_of(b.build(), [0, 64, 128])))
    assert found.words == ("give y all its 128 bytes, at 64", "place z at 0")
    assert (found.nbytes, check(found.document).clean) == (0, True)


def test_two_moves_that_cost_nothing_are_better_than_one_that_costs_bytes():
    found = cure_of(Document.of(plan(CHAIN, "x=0 h=256 y=512 z=384 o=0", belief(CHAIN))))
    assert len(found.moved) == 2
    assert (found.nbytes, check(found.document).clean) == (0, True)


def test_two_moves_bring_a_state_out_of_the_way_for_nothing():
    made = program("x = host.write; t = f x; o = g t s; s2:s = u o; host.read o", roles={"s": Role.STATE})
    lives = belief(made, s=(2, 4), own=[])
    found = cure_of(Document.of(plan(made, "s=0 x=64 t=0 o=128", lives)))
    assert len(found.moved) == 2
    assert (found.nbytes, check(found.document).clean) == (0, True)


def test_a_taker_that_only_the_mended_belief_brings_to_light_moves_too():
    """Nothing is read late: b takes a's place as a's last reader. The belief that ended before it had told of no such pair."""
    made = program("x = host.write; a = f x; y = f a; b = g! a; c = h b y; host.read c")
    document = Document.of(plan(made, "x=64 a=0 y=64 b=0 c=128", belief(made, share="-", a=(1, 3))))
    found = cure_of(document)
    assert found.words == ("keep a until op 3 (g) has run",)
    assert (found.placement, len(found.moved), found.nbytes) == ("amended", 1, 0)
    assert check(found.document).clean


def test_what_was_told_where_to_lie_is_never_moved_by_the_search():
    made = program("x = host.write; a = f x; b = g x; c = h b a; host.read c")
    document = Document.of(plan(made, "x=128 a=0 b=0 c=64", belief(made, a=(1, 2), fixed={1: 0})))
    rooms = rooms_of(document)
    bodies = few.bodies_of(document, charges_in(causes_of(document)))
    assert ((0, 1),) not in bodies
    assert all(
        move.growth == move.rooms[0].peak() - rooms[0].peak()
        for move in few.moves_of(document, rooms, bodies, list(Rigour))
    )


def test_an_upload_that_races_once_it_is_there_comes_with_its_wait():
    """Where nobody uploads there is no race; the upload alone would bring one."""
    made = program("x = host.write ~1; h = f x ~0; host.read h ~0")
    found = cure_of(Document.of(Run.of(plan(made, "x=0 h=64"), skip=(0,))))
    assert found.words == ("let op 1 (f) wait for op 0 (host.write)", "upload x before every run")
    assert (found.nbytes, check(found.document).clean) == (0, True)


def test_what_a_plan_brings_to_light_that_the_mend_made_is_not_moved():
    """Its slots have no room among those of the plans that were there."""
    document = over_state()
    drafted = few.Draft(document=document, rooms={})
    beyond = [replace(v, plan=len(document.plans)) for v in check(document).violations]
    assert not few.moved_off(drafted, beyond, Rigour.LIVING)


def test_a_plan_made_anew_is_for_the_program_that_ran_under_the_wrong_one():
    one = program("x = host.write; y = f! x; host.read y")
    other = program("x = host.write; y = f x; host.read x y", name="q")
    made = plan(one, "x=0 y=0", belief(one, share="x>y"))
    found = cure_of(Document.of(Run.of(made), Run.of(made, program=other)))
    assert [(change.kind, change.program) for change in found.changes] == [("stale", 1)]


def test_a_pair_that_nobody_stated_is_named_by_its_buffers_the_first_one_too():
    """The recipient is buffer 0, and its op declares nothing in place."""
    b = ProgramBuilder("p", arenas=(Arena(name="cpu", alignment=32),))
    result, x, h = (b.tensor(name, "f32", (8,)) for name in ("y", "x", "h"))
    b.op("host.write", (), (x,))
    b.op("f", (x,), (h,))
    b.op("g", (h,), (result,), in_place=())
    b.op("host.read", (result,), ())
    (cause,) = judge(Evidence(document=Document.of(plan_of(b.build(), [32, 0, 32])))).causes
    assert (cause.class_, cause.change.kind, cause.change.problem, cause.change.other) == ("C03", "pair", None, 0)
    assert [(e.kind, e.buffer, e.other) for e in cause.cure.changes] == [("pair", 2, 0)]
