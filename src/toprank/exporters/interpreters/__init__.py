"""Interpreters: score an exported file by the rules of another program's parser, arithmetic and order of sums.

The rules were read in the sources of these programs. An interpreter sees only the text of a file, never a ranker or a
formula, so it detects errors in the file.
"""
