"""What other programs make of an exported file: their parsers' rules, their arithmetic, their order of sums.

Read from their sources. A module here never looks at a ranker or a formula, only at the text of a file, so
that it can tell when a file is wrong.
"""
