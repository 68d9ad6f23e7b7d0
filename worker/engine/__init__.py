"""Engines behind one small protocol: see `base.Engine`."""
