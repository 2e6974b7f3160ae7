"""Train ONE member: initialise, step, epoch, stop; its loss, metrics, optimiser and examples.

Must not know that there are many members: nothing here has a member axis, devices or files.
"""
