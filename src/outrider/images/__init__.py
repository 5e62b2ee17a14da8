"""Images: the wheels that they are made of, how they are built, what is in them."""
