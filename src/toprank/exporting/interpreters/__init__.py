"""What the targets make of an exported file: their parsers' rules, their arithmetic, their order of sums.

Read from the sources of the targets. A module here never looks at a ranker or a formula, only at the text of a file, so
that it can say that a file is wrong.
"""
