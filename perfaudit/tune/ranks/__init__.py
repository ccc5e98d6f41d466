"""Settings that only several ranks together have: of DistributedDataParallel, raced in fresh sets of ranks.

A set of ranks is one run of the script on all of them. The sets of a generation, one for the code as it is, one for
identical code and one for each patch, follow each other in random order.
"""
