"""Provisioning: a bare node made ready by the playbooks in `ansible/`, and what was measured on it."""
