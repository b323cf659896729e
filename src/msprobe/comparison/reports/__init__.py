"""Reports beside the CSV, each written only when it is asked for (Options.reports): spreadsheet, JSON lines, one HTML page.

writing       which files one pair of dumps gets
full_rows     the rows as all of them need them: the cells of the CSV, but every recorded value as it is
new_file      files that never replace another
xlsx          the workbook; xlsx_summary: its first sheet
json_lines    one JSON object for each row
histograms    how the errors of two tensors are distributed
report_html/  the page
"""
