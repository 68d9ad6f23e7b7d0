"""`make resume-sse`: streams that are cut again and again, and go on at another gateway."""
