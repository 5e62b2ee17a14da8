"""Bundles: everything that a node without network needs to serve a stack, in checksummed parts."""
