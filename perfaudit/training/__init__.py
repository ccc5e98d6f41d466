"""A training that runs in a child, and variants that are put in place between two of its steps."""
