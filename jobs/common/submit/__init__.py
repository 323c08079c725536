"""What ./spark-submit.sh does: it runs one of the project's jobs on Spark, or prints how. Any Python from 3.11 on does
that, without a package and before anything is set up; whoever types waits for it, so it imports little.
"""
