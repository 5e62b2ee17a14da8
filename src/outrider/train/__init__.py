"""Training a drafter: know its cost beforehand, then go from prompts to a served, checked head."""
