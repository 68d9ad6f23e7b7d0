"""Hop 3: take from the inbox, run on an engine, emit tokens, finish."""
