"""Damage. `lost` compares log dirs with their checkpoints and the cluster's metadata, and finds what they have lost,
and partitions that are misnamed or in two log dirs. `known_damage` takes from a catalog the damage that builds and the
last audits have found, and the gaps between its segments, each accepted or not; it also joins these gaps with what is
lost. `acceptances` records and withdraws what somebody has accepted, and matches it with findings.
"""
