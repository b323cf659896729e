"""Dumps of MindSpore beside those of PyTorch.

A name keeps being shown as it was recorded. What is paired and judged by is the name that PyTorch has for the same thing, so that a
Dense is known to be a sum of products, and two frameworks can be compared. No framework is imported.

equivalents     the table: functions, classes, parameters, arguments
naming          names of entries
dtypes          names of dtypes
places          names of values inside a call
shapes          weights that have a dimension more
pairs           what one framework records of a call and the other does not
"""
