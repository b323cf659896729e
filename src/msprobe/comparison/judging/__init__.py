"""How large a difference rounding explains, and what a third dump in higher precision says.

    operations   which kind of operation a call is, by its name
    values       the numbers of one recorded value that an expectation is made from
    expected     forward: the error that rounding leaves in an output
    backward     the same for gradients
    weighing     the stage: every measured difference against its expectation
    reference    --reference: which of the two runs is closer to the truth
    hints        what a difference looks like: another sign, another scale
"""
