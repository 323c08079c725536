"""Damage. `known_damage` takes from a catalog the damage that builds and the last audits have found, and the gaps
between its segments, less what somebody has accepted (`acceptances`). `lost` compares log dirs with their checkpoints
and the cluster's metadata, and finds what they have lost.
"""
