"""Models of tables in C99: headers that `to_c` writes, compiled and compared with predict."""

import shutil
import subprocess

import numpy as np
import pytest
import tables_for_export as tables

from hforest import project, tabular
from hforest.__main__ import main
from hforest.tabular import c_source

COMPILER = shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler called cc")
FLAGS = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"]
PROGRAM = """
#include <stdio.h>
{includes}
int main(void) {{
    double x[{n_features}], y[{n_outputs}];
    while (fread(x, sizeof x, 1, stdin) == 1) {{
{calls}
    }}
    return 0;
}}
"""


def predictions(models, x, folder, flags=()):
    """Returns what compiled models of one table predict, (n_models, n_samples, n_outputs)."""
    includes, calls = [], []
    for i, model in enumerate(models):
        (folder / f"m{i}.h").write_text(tabular.to_c(model, name=f"m{i}"), encoding="ascii")
        includes.append(f'#include "m{i}.h"\n#include "m{i}.h"')
        calls.append(f"        m{i}_predict(x, y);\n        fwrite(y, sizeof y, 1, stdout);")
    n_outputs = len(models[0].target_center)
    sizes = {"n_features": x.shape[1], "n_outputs": n_outputs}
    text = PROGRAM.format(includes="\n".join(includes), calls="\n".join(calls), **sizes)
    (folder / "main.c").write_text(text)
    command = [COMPILER, *FLAGS, *flags, "-o", str(folder / "main"), str(folder / "main.c"), "-lm"]
    subprocess.run(command, check=True, timeout=300)
    content = np.ascontiguousarray(x, np.float64).tobytes()
    done = subprocess.run([folder / "main"], input=content, check=True, capture_output=True, timeout=100)
    return np.frombuffer(done.stdout).reshape(len(x), len(models), n_outputs).transpose(1, 0, 2)


def check(models, x, folder, flags=()):
    for model, found in zip(models, predictions(models, x, folder, flags), strict=True):
        expected = tabular.predict(model, x).reshape(found.shape)
        unit = 1.0 if model.task == "classification" else abs(expected).max()
        error = (abs(found - expected) / unit).max(axis=1)
        assert error.max() < 1e-6


@needs_compiler
@pytest.mark.parametrize("kind", tables.KINDS)
def test_models_of_tables(kind, tmp_path):
    model, x = tables.fitted(kind)
    check([model], x, tmp_path)


@needs_compiler
def test_every_kind_of_member(tmp_path):
    model, x = tables.fitted("three classes")
    check(tables.variants(model), x, tmp_path)


@needs_compiler
@pytest.mark.parametrize("scaling", ["deviations", "normal"])
def test_scaling_of_all_columns(scaling, tmp_path):
    model, x = tables.fitted("missing", scaling=scaling)
    ends = np.tile(model.scaling.high, (4, 1)) * [[1], [0], [1], [0]]
    ends += np.tile(model.scaling.low, (4, 1)) * [[0], [1], [0], [1]]
    check([model], np.concatenate([x, ends, model.scaling.knots[:7, None] * np.ones(7)]), tmp_path)


@needs_compiler
def test_no_memory_is_read_out_of_bounds(tmp_path):
    model, x = tables.fitted("categories")
    x = np.concatenate([x, [[np.inf] * 7, [-np.inf] * 7, [np.nan] * 7, [1e300] * 7]])
    sanitizer = ["-fsanitize=address,undefined", "-fno-sanitize-recover"]
    try:
        found = predictions([model], x, tmp_path, sanitizer)
    except subprocess.CalledProcessError as error:
        if "cc" in str(error.cmd[0]):
            pytest.skip("the compiler has no sanitizers")
        raise
    assert np.isfinite(found).all()


NAMES = ['a"', "b*/", "c\\n", "d??/", "é\nf"]


@needs_compiler
def test_texts_of_a_file_are_data(tmp_path):
    """Names of columns, categories and classes that would end a string or a comment are read back unchanged."""
    pytest.importorskip("narwhals", reason="needs narwhals")
    rng = np.random.default_rng(0)
    table = {name: rng.normal(size=200) for name in NAMES}
    table["level"] = np.array([*NAMES, "m0_model_"])[rng.integers(0, 6, 200)]
    y = np.array(NAMES)[np.digitize(table["level"] == NAMES[0], [1]) + (table[NAMES[0]] > 0)]
    model = tabular.fit(table, y, n_members=1, n_trees=4, steps=20, rng=0)
    text = tabular.to_c(model, name="table")
    (tmp_path / "table.h").write_text(text, encoding="ascii")
    (tmp_path / "main.c").write_text(
        """
#include <stdio.h>
#include "table.h"
int main(void) {
    int k;
    for (k = 0; k < TABLE_N_FEATURES; k++) printf("%s%c", table_features[k], 0);
    for (k = 0; k < TABLE_N_OUTPUTS; k++) printf("%s%c", table_classes[k], 0);
    for (k = 0; k < 6; k++) printf("%s%c", table_categories[k], 0);
    for (k = 0; k < 6; k++) printf("%g%c", table_category(5, table_categories[k]), 0);
    printf("%d%c%d", table_category(5, "new") >= 0, 0, table_category(0, "m0_model_") >= 0);
    return 0;
}
"""
    )
    command = [COMPILER, *FLAGS, "-o", str(tmp_path / "main"), str(tmp_path / "main.c"), "-lm"]
    subprocess.run(command, check=True, timeout=100)
    words = subprocess.run([tmp_path / "main"], check=True, capture_output=True).stdout.decode().split("\0")
    levels = sorted(set(table["level"].tolist()))
    expected = [*NAMES, "level", *model.classes.tolist(), *levels, *"012345", "0", "0"]
    assert words == expected


def test_the_header_is_text_without_more_than_the_standard_library():
    model, _ = tables.fitted("text")
    text = tabular.to_c(model, name="my_table2")
    included = [line for line in text.splitlines() if line.startswith("#include")]
    assert included == ["#include <math.h>", "#include <stddef.h>", "#include <string.h>"]
    assert "model_" not in text
    assert "malloc" not in text
    assert '"no", "y\\"es\\134"' in text.replace("\\042", '\\"')


@pytest.mark.parametrize("name", ["", "1a", "a b", "a-b", "é", 'a"', "a\n", "_a"])
def test_names_that_are_refused(name):
    model, _ = tables.fitted("plain")
    with pytest.raises(ValueError, match="name: expected letters, digits and _, first a letter, got"):
        tabular.to_c(model, name=name)


def test_what_is_refused():
    model, _ = tables.fitted("plain")
    with pytest.raises(TypeError, match="model: expected a Model, got str"):
        tabular.to_c("model")
    with pytest.raises(TypeError, match="name: expected text, got int"):
        tabular.to_c(model, name=1)
    member = model.members[0]
    forest = member.forest
    x = np.random.default_rng(0).normal(size=(50, int(forest.n_features))).astype(np.float32)
    import hforest

    distribution = project.sparse_distribution(x.shape[1])
    oblique = hforest.grow(x, (x[:, 0] > 0).astype(int), 1, projections=distribution, rng=0)
    changed = model._replace(members=(member._replace(forest=oblique, share=np.array(0.5)),))
    with pytest.raises(ValueError, match=r"model.members\[0\].forest: expected splits by columns"):
        tabular.to_c(changed)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("people", "people"),
        ("My model-3", "my_model_3"),
        ("3.1", "model_3_1"),
        ("__", "model"),
        ("é", "model"),
    ],
)
def test_names_of_files_become_names_of_c(text, name):
    assert c_source.identifier(text) == name


# ------------------------------------------------------------------------------------ the command line


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.npz"
    tabular.save(path, tables.fitted("plain")[0])
    return path


def test_export_on_the_command_line(saved, tmp_path, capsys):
    out = tmp_path / "My model.h"
    assert main(["export", str(saved), str(out)]) == 0
    assert out.read_text() == tabular.to_c(tables.fitted("plain")[0], name="my_model")
    assert main(["export", str(saved), str(out), "--name", "other"]) == 0  # replaces an older header
    assert "other_predict(const double *x" in out.read_text()
    assert str(out) in capsys.readouterr().out


def test_export_to_onnx_on_the_command_line(saved, tmp_path):
    onnx = pytest.importorskip("onnx", minversion="1.16", reason="needs onnx 1.16 or newer")
    out = tmp_path / "model.onnx"
    for _ in range(2):  # the second one replaces the first
        assert main(["export", str(saved), str(out)]) == 0
    assert [output.name for output in onnx.load(out).graph.output] == ["label", "shares"]


def test_export_refuses_files(saved, tmp_path, capsys):
    mine = tmp_path / "mine.h"
    mine.write_text("int a;\n")
    for arguments, message in (
        ([saved, mine], "FILE: expected a new file or an exported model written by hforest"),
        ([saved, tmp_path / "model.txt"], "FILE: expected a file that ends in .h or .onnx"),
        ([mine, tmp_path / "new.h"], "expected a model of a table that save wrote"),
        ([saved, tmp_path / "new.h", "--name", "1"], "name: expected letters, digits and _"),
        ([tmp_path / "none.npz", tmp_path / "new.h"], "got no such file"),
    ):
        assert main(["export", *map(str, arguments)]) == 2
        assert message in capsys.readouterr().err
    assert mine.read_text() == "int a;\n"
    assert not (tmp_path / "new.h").exists()
    assert main(["export", str(saved), str(mine), "--force"]) == 0
