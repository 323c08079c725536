"""./spark-submit.sh: runs one of the project's jobs on Spark, or prints how. `call` has the words of a call, the
script's help and version, and finds the project's files: its jobs and others by their names, its Python, the
directories of its modules. `launch` makes the command that runs a job: its environment, and the options of Spark, among
them modules and jars that the job sends along. `main` becomes that command. Any Python from 3.11 on can run this
package, without other packages and before anything is set up. A user waits for it, so it imports little.
"""
