"""Traces of PyTorch's profiler: what each device did, why it was idle, and what that could save at most. Runs nothing."""
