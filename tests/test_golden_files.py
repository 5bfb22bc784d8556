"""Files of earlier versions load, and produce the same outputs as then."""

import os
import sys

import numpy as np
import pytest
from golden_files import FOLDER, FORMATS, Format

MAX_BYTES = 300_000


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.file)
def test_files_of_earlier_versions_give_the_same_outputs(form: Format):
    for module in form.needs:
        pytest.importorskip(module, reason=f"needs {module}")
    # A copy, which a reader cannot write to.
    with np.load(form.expected) as stored:
        expected = dict(stored)
    x = expected.pop("x")
    called = set()
    sys.setprofile(lambda frame, event, arg: called.add(frame.f_code.co_name))
    try:
        found = form.outputs(FOLDER / form.file, x)
    finally:
        sys.setprofile(None)
    # NumPy drops an exception that a signal handler raises while the text of an array is made.
    assert form.needs or "_array_str_implementation" not in called
    assert found.keys() == expected.keys()
    for name, a in found.items():
        assert a.dtype == expected[name].dtype, name
        assert a.shape == expected[name].shape, name
        if form.rtol and a.dtype.kind == "f":
            np.testing.assert_allclose(a, expected[name], rtol=form.rtol, atol=form.rtol, err_msg=name)
        else:
            np.testing.assert_array_equal(a, expected[name], err_msg=name)


def test_the_folder_holds_these_files_alone():
    known = {name for form in FORMATS for name in (form.file, form.expected.name)}
    assert known == {entry.name for entry in os.scandir(FOLDER)}
    assert sum(entry.stat().st_size for entry in os.scandir(FOLDER)) <= MAX_BYTES
