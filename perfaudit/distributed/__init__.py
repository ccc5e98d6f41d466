"""Several processes of one training: which of them this is, how they find each other, and what tells their steps apart."""
