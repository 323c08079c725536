"""The report: one HTML page of what a catalog knows of a fleet's segments, and the same numbers as JSON. `document`
puts it together, and writes the page. `questions` has the SQL, `sections` what comes of it, `attention` what stands
first. `timeline`, `what_if` (other limits of retention) and `savings` (other settings of producers) make sections of
their own. `savings` simulates these producers, with their estimates of compression; in `savings_kernel` are the loops
by which it measures and copies records and lays them down in batches.
"""
