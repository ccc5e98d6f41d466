"""Somebody's training script, run as Python runs it, without an edit, and watched at the boundaries of its steps."""
