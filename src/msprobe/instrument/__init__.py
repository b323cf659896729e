"""`msprobe enable` and `msprobe disable`: put the calls of the debugger into a script, and take exactly them out again."""
