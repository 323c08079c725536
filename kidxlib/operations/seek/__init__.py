"""Seeks: one question, from a command line, is answered by `one_question`, and many, from a file (`seek_files`), range
by range by `many_questions`, which also writes offsets for consumer groups, by workers in `answer_work`.
"""
