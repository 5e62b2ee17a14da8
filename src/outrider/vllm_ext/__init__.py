"""What Outrider runs inside the engine's own processes.

Baked into the images and imported by the engine core, so nothing here imports the rest of Outrider, and only
`scheduler` imports the engine.
"""
