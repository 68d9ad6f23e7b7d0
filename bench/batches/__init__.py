"""Measurements of batches: how fast, how safe, how well rows that begin alike share a cache."""
