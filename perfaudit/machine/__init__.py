"""The machine, asked about what a training may use of it and what would spoil a measurement. No code of a user is run."""
