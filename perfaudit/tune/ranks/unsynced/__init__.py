"""Reasons to refuse `no_sync`, and what tells that there are none: which pass is the last of a step, and who has the model."""
