"""Machines that others schedule, where sets of fresh processes run. Only `ray_nodes` imports Ray, only `slurm` submitit."""
