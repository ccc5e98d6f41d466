"""Callbacks that tell, while a library's trainer trains, where its steps go: `PerfauditCallback` of each module.

They run in the user's own process. Neither torch nor a trainer is imported before a module of this folder is.
"""
