"""Keep the progress of a fit on disk, so that it can be continued to the same bits.

Knows the state of training members. Must not know how or where members are run.
"""
