"""A measure of the tests' strength: small changes of the sources, and whether a test sees each; see docs/contributing.md.

mutants.py     the changes of a file
lines.py       a plugin of pytest, which records the lines that each test runs
covered.py     which tests run a line
copies.py      copies of the checkout, in which mutants are built and run
mutants.toml   mutants that change no behaviour, with the reason
"""
