"""What is wrong with logs and index files, as findings with a verdict, a reason and a consequence. The audit also
simulates what a broker does with them at its next start, and says whether they may be tiered.
"""
