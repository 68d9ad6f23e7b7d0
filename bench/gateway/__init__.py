"""What a gateway adds to an engine, ours and its peers."""
