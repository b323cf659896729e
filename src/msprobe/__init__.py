"""msprobe finds where two runs of a deep-learning model part.

Importing this package imports no deep-learning framework.
"""

__version__ = "0.1.0"
