"""What is wrong with remote segments (KIP-405): their metadata, their objects and the bytes of these are compared."""
