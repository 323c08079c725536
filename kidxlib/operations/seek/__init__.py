"""Seeks: one question, from a command line, is answered by `one_question`, and many, from a file (`seek_files`), key
range by key range by `many_questions`, by workers in `answer_work`.
"""
