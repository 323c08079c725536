"""./spark-submit.sh: runs one of the project's jobs on Spark, or prints how: `call` has the words of a call, `launch`
the command that runs a job, with the options of Spark in it, and `main` becomes that. Any Python from 3.11 on can run
this package, without other packages and before anything is set up. A user waits for it, so it imports little.
"""
