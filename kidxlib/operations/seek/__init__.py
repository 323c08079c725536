"""Seeks. One question, from a command line, is answered by `one_question`, which also says what was not asked, and why.
Many, from a file (`seek_files`), are divided into ranges by `many_questions` and answered by workers (`answer_work`);
`many_questions` also writes offsets for consumer groups.
"""
