"""Several recordings of one script that should be the same: the first call that is not.

fingerprints    one dump     -> for each call, what was recorded of its inputs, parameters and outputs as numbers that are equal or not
runs            the dumps    -> which runs agree on which call, and where they first do not
table           an API       -> what torch says of its determinism
words, report_csv: for people
"""
