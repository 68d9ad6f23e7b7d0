"""An hour of steady load through all roles: does anything grow?"""
