"""Changes to pinned dependencies: one ledger, one guard a change, applied alike in images and on this machine."""
