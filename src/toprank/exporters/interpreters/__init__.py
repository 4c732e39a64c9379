"""How other programs score an exported file: the rules of their parsers, their arithmetic, their order of sums.

The rules were read in the sources of these programs. An interpreter sees only the text of a file, never a ranker or a
formula, so that it can tell when a file is wrong.
"""
