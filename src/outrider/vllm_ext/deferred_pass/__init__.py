"""Puts off the drafter's pass while k is 0, and makes up for several steps at once. Lossless.

An engine whose schedule says k = 0 runs an EAGLE drafter once a step all the same: nothing is drafted, but the
drafter's cache has to hold every token by the time it drafts again. Here the inputs of these passes are kept, and one
pass over many tokens takes the place of many over one. docs/decisions/0004-deferred-pass.md says why it is built so.
"""
