"""What is kept of one name is what the next would have given."""

from __future__ import annotations

from itertools import product

from msprobe.comparison.names import Parser, parse

PIECES = [
    "",
    *[
        "Torch",
        "Module",
        "add",
        "fc",
        "Linear",
        "forward",
        "backward",
        "parameters_grad",
        "debug",
        "0",
        "7",
        "07",
        "12",
        "²",
        "-1",
        "pass1",
    ],
]


def test_many_names_at_once() -> None:
    names = [".".join(pieces) for size in (1, 2, 3) for pieces in product(PIECES, repeat=size)]
    names += [".".join(pieces) for pieces in product(("Torch", "Module", "07"), *[PIECES] * 3)]
    names += [".".join(("Module", "fc", *pieces)) for pieces in product(PIECES[3:], repeat=3)]
    for some in (names, names[::-1]):
        parser = Parser()
        for name in some:
            assert parser(name) == parse(name), name


def test_calls_of_one_operation_share_their_parts() -> None:
    parser = Parser()
    assert parser("Torch.add.0.forward") is parser("Torch.add.12.forward")
    assert parser("Torch.add.0.forward") is not parser("Torch.add.0.backward")
