"""Twenty thousand jobs while everything is killed: is any lost, doubled, stuck, or told falsely?"""
