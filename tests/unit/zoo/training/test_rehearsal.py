from zoo.training.rehearsal import Sizes, changes, shrink

GIB = 2**30
DCU32 = Sizes({"node": 8, "card": 4}, 512)


def test_what_fits_keeps_its_axes_and_only_the_batch_shrinks():
    small = shrink(DCU32, 1, state_bytes=GIB // 8, free_bytes=16 * GIB)
    assert small == Sizes({"node": 8, "card": 4}, 32)
    assert changes(DCU32, small) == {"global batch": [512, 32]}


def test_nodes_go_first_and_every_change_is_told():
    small = shrink(DCU32, 2, state_bytes=GIB // 2, free_bytes=20 * GIB)
    assert small == Sizes({"node": 4, "card": 4}, 32)
    assert changes(DCU32, small) == {"axis node": [8, 4], "devices": [32, 16], "global batch": [512, 32]}


def test_cards_go_when_no_node_is_left():
    assert shrink(DCU32, 1, state_bytes=GIB, free_bytes=4 * GIB) == Sizes({"node": 1, "card": 2}, 2)


def test_odd_axes_shrink_by_their_smallest_divisor():
    assert shrink(Sizes({"node": 3, "card": 5}, 15), 1, state_bytes=GIB, free_bytes=12 * GIB).axes == {
        "node": 1,
        "card": 5,
    }


def test_every_process_keeps_a_device_even_where_memory_says_otherwise():
    assert shrink(Sizes({"node": 1, "card": 4}, 4), 1, state_bytes=GIB, free_bytes=GIB, processes=2).axes == {
        "node": 1,
        "card": 2,
    }


def test_the_batch_stays_a_dimension_that_the_program_sums_over():
    assert shrink(Sizes({"card": 1}, 4), 1, state_bytes=GIB, free_bytes=GIB) == Sizes({"card": 1}, 2)
    assert shrink(Sizes({"card": 1}, 1), 1, state_bytes=GIB, free_bytes=GIB) == Sizes({"card": 1}, 1)
    assert shrink(Sizes({"card": 8}, 1), 1, state_bytes=1, free_bytes=GIB) == Sizes({"card": 8}, 1)
