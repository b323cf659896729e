"""One HTML file for a whole comparison: it opens offline, in any current browser, and runs nothing but its own scripts.

part(compared)               what one pair of dumps gives to it; made where the pair is compared
write(outcome, ...)          the file
tree, values, code, pictures the four kinds of data in a part; packing: JSON, compressed
source_lines                 the user's code around a line
page                         the file from its parts; assets/: styles and scripts
"""

from msprobe.comparison.reports.report_html.page import write
from msprobe.comparison.reports.report_html.parts import part

__all__ = ["part", "write"]
