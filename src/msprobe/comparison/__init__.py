"""Compares dump directories, whoever made them. Reads, and never executes, what they hold; imports no deep-learning framework.

The stages, each in a file of its own, hand plain immutable values to each other:

    inputs      two paths             -> pairs of dump files
    rows        a dump                -> calls, each with its recorded values as rows (reading: a part of the file at a time)
    match       two lists of calls    -> pairs of calls, pairs of rows (alignment/: which call is which; aliases: names that two tools give)
    mapping/    what the user says of two models that are not built alike (yaml_file); pairing: all of this for one pair of dumps
    structure   the same for dumps without values
    measure*    a pair of rows        -> metrics, and how well the two agree (contradiction: a file that is not what was recorded)
    unread      values that neither side recorded are not compared
    calls       measured rows         -> what they say about the call
    first_difference                  -> where the two runs part
    beginnings                        -> runs that look unseeded, or compute in another dtype
    judge       measured rows         -> pass, warning, error, unmatched, not compared (thresholds: every number)
    stacks, locations                 -> lines of code
    communication, meetings, ranks    -> which rank made a difference, and which only received it
    propagation, previous_step        -> what becomes of the difference, and what the step before says (spread: both in words)
    report_csv, report_summary, describe: files and words; sentence: the first of them
    reports/    what is written besides when it is asked for: workbook, JSON lines, HTML page
    one_pair    runs them for two dump files: the unit of work; compared: what every report is made from
    work, jobs, cluster, remote: where the unit runs, and dumps that lie where only fsspec reaches
    compare     runs it for all pairs (options: what can be chosen); outcome: what it returns
    diff_analyze: the JSON files of `-da`; result: all of it as a Python object (msprobe.api)
    repeated/   several recordings of one script; merge: results of several ranks side by side
"""
