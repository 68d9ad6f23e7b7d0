"""What all roles share to be watched: figures over HTTP, and traces. It imports none of them."""
