"""Runtimes: how a variant's engine is started, watched and stopped.

`base` holds the interface that all runtimes share; `local` is a supervised process on this machine.
Import from the modules: this package stays empty so that the supervisor process stays small.
"""
