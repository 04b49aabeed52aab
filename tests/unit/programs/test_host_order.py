"""What ops wait for by the host's words; `test_allocator_trace` holds the same module against a graph of all events."""

from allocsim.programs.host_order import DeviceBytes, HostOrder


def two_streams():
    order = HostOrder()
    return order, order.stream("a"), order.stream("b")


def test_a_mark_orders_what_was_given_before_it_and_no_more():
    order, a, b = two_streams()
    order.put(a, 0)
    order.record("m", a)
    order.put(a, 1)
    order.wait("m", b)

    assert order.put(b, 2) == [0]
    assert order.put(b, 3) == []


def test_a_mark_that_nobody_recorded_or_that_is_gone_orders_nothing():
    order, a, b = two_streams()
    order.put(a, 0)
    order.wait("never", b)
    order.record("m", a)
    order.forget("m")
    order.forget("m")
    order.wait("m", b)
    order.synchronize_mark("m")

    assert order.put(b, 1) == []


def test_what_the_host_knows_comes_before_all_that_follows():
    order, a, b = two_streams()
    order.put(a, 0)
    order.record("m", a)
    order.put(a, 1)
    order.synchronize_mark("m")
    assert order.put(b, 2) == [0]
    order.synchronize(a)
    assert order.put(b, 3) == [1]


def test_streams_that_join_come_after_all_streams():
    order, a, b = two_streams()
    c = order.stream("c")
    order.put(a, 0)
    order.put(b, 1)
    order.join([a, c])

    assert (order.put(c, 2), order.put(a, 3), order.put(b, 4)) == ([0, 1], [1], [])


def test_memory_that_is_given_out_again_proves_that_its_recorded_uses_ended():
    order, a, b = two_streams()
    order.put(a, 0)
    order.put(b, 1)
    order.freed("x", DeviceBytes(0, 0, 64), [b])
    order.given_out(DeviceBytes(0, 64, 128))
    order.given_out(DeviceBytes(1, 0, 64))
    assert (order.assumed, order.put(a, 2)) == (0, [])
    order.given_out(DeviceBytes(0, 32, 48))
    assert (order.assumed, order.put(a, 3)) == (1, [1])
