"""How large a difference rounding explains, and what a third dump in higher precision says.

operations   which kind of operation a call is, by its name
values       the numbers of one recorded value that an expectation is made from
expected     forward: the error that rounding leaves in an output
backward     the same for gradients
steps        the error of what an optimizer made of a parameter
masks        fill values of attention masks are no numbers
reordered    parameters that hold the same values in another order
absent       values that only one side has, and that made no difference
casts        what a cast alone does to Max, Min, Mean and Norm
weights      which weights are casts of each other, which are other ones, and which may have been trained apart
weighing     the stage: every measured difference against its expectation
reference    --reference: which of the two runs is closer to the truth
hints        what a difference looks like: another sign, another scale, another order
words        sizes in words
"""
