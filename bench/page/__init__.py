"""What the live page costs a browser, and whether all can use it."""
