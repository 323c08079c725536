"""The damage that a catalog knows (`known_damage`): found by builds and by the last audits, less what somebody has
accepted (`acceptances`). `lost` is what log dirs have lost by their checkpoints and the cluster's metadata.
"""
