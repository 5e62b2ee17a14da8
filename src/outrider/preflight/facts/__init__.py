"""Facts: what configs, drafters and nodes are, derived purely from what was read."""
