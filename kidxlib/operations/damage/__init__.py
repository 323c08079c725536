"""The damage that a catalog knows: found by builds and by the last audits, less what somebody has accepted."""
