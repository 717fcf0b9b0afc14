"""One picture, one file, with its words in both languages in a YAML file of the same name beside it.

TAKES                   what it is drawn from, for people: nothing, a checkpoint, runs
Options                 its settings, each bounded
data(thing, options)    its numbers, as JSON has them, without any drawing library
chart(data, words)      the panels that show those numbers
"""
