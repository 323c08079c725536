"""Seeks: questions from a file (`questions`) or a command line (`one_question`), answered key range by key range
(`many_questions`, by workers in `answer_work`), counted and written (`output`).
"""
