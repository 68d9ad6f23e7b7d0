"""What every role shares: key names, messages, states, the Redis function library, errors, clock, settings, logging.

It imports none of the other packages, and it is the only place that knows how a thing is spelled in Redis.
"""
