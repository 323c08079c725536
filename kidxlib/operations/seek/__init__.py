"""Seeks. One question, from a command line, is answered by `one_question`, which also says what was not asked, and why,
and has the outcome. Many are read by `seek_files` from a file or table, which also writes the answers and says what is
wrong with either file. `many_questions` has the steps for a catalog: it divides questions into ranges, and writes
offsets for consumer groups. Workers answer them (`answer_work`).
"""
