"""`python -m hforest`: trains a random hinge forest and random hinge ferns on handwritten digits.

The network is that of Lay et al. 2018, Fig. 2b (letter, USPS); the data ship with the package. A tenth of the
training rows is held out: the error on these rows is shown while the network learns from the others. The test
rows are read once, after the last step. Steps and learning rate were chosen on training rows alone
(bench/main_job.py). With --data the recipe for tables (`hforest.tabular`) is fitted, or with --kind tree or
fern a network. `python -m hforest predict` applies the model that either has written.
"""

import argparse
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import __version__, _interrupts, _networks, _output, _tables
from .tabular.reading import has_columns

EXAMPLES = """
examples:
  python -m hforest                                           both kinds on the digits
  python -m hforest --data people.csv --target income --save model.npz    your own table
  python -m hforest predict model.npz new.csv --out predicted.csv         its predictions for other rows
  python -m hforest export model.npz model.h                              the model in C, or as model.onnx
  python -m hforest verify                        whether results have the same bits on this machine

`python -m hforest predict --help` and so on describe the last three. Tables are CSV
(also .gz), Parquet, or .npz archives with arrays x and y. Settings of --set are, with their defaults:
n_trees=100 depth=10 n_features=100 n_kernels=0 (5x5 convolutions of square images instead of inner products)
optimizer=adam (or adagrad) lr=0.005 (on the digits 0.04, adagrad 0.05) lr_half_life=0 (on the digits 250)
batch_size=53 eval_every=500 (on the digits 50) held_out (a tenth of the training rows; 0: learn from all, and
look at the test rows at each evaluation) checkpoint_seconds=5; of a table depth=6 (in a regression 4)
n_features=300 lr=0.012 batch_size=128.
"""
Options = dict[str, tuple[str, dict[str, Any]]]
"""Names of options, what they do, and further arguments of argparse."""
NAMES: dict[str, Any] = {"metavar": "NAME", "nargs": "+"}
SIZE: dict[str, Any] = {"metavar": "N", "type": int}
FLAG: dict[str, Any] = {"action": "store_true", "default": None}
DATA: Options = {
    "--data": ("a CSV or Parquet file with --target, or an .npz archive: x and y, or x_train, y_train, "
               "x_test and y_test", {"metavar": "FILE"}),
    "--target": ("the column of a CSV or Parquet file that is to be predicted", {"metavar": "NAME"}),
    "--drop": ("columns that are left out, such as numbers of rows", NAMES),
    "--categorical": ("columns whose values are categories as they are spelt, such as postal codes", NAMES),
    "--null-values": ("texts that stand for a missing value (those of pandas and readr, and ?)", NAMES),
    "--day-first": ("01/02/2020 is in February", FLAG),
    "--no-header": ("the first line has values; columns are called 0, 1, ...", FLAG),
    "--task": ("what the target is (regression if it has numbers that are not whole, or in a file more "
               "than 20 different ones)", {"choices": ("classification", "regression")}),
    "--train": ("the first N rows to train on, the rest to test on", SIZE),
    "--no-refit": ("save the model of the training rows; else a table is fitted again, to all rows", FLAG),
}  # fmt: skip
MODEL: Options = {
    "--kind": ("the recipe for tables (the default with --data), or the network with trees or ferns "
               "(both without --data)", {"choices": ("table", "tree", "fern")}),
    "--n-trees": ("trees or ferns (100; of each of three members of a table 50)", SIZE),
    "--steps": ("mini-batches (8000, on the digits 1000; of a member of a table at most 1500)", SIZE),
    "--set": ("further settings, such as depth=8 lr=0.01; see below", {"metavar": "N=V", "nargs": "+"}),
    "--device": ("of a network (%(default)s)", {"choices": ("cpu", "cuda"), "default": "cpu"}),
    "--seed": ("(%(default)s)", {"type": int, "default": 0}),
    "--save": ("write the model, of a network also checkpoints, to this file", {"metavar": "MODEL.npz"}),
    "--resume": ("go on from the checkpoint of --save", FLAG),
    "--plot": ("of a table: draw importances, calibration and confusion, or residuals, in this folder; of a "
               "network: loss and error in this file (on the digits hforest.png)", {"metavar": "PLACE"}),
    "--no-plot": ("draw nothing", {"dest": "plot", "action": "store_false", "default": None}),
}  # fmt: skip
PREDICT: Options = {
    "model": ("written by --save", {"metavar": "MODEL.npz"}),
    "data": ("a CSV or Parquet file with the columns of the first one, or an archive with x or x_test; "
             "where it has the target, or y, the error is printed", {"metavar": "DATA"}),
    "--out": ("write labels and probabilities, or targets: .csv, .parquet or .npz", {"metavar": "FILE"}),
    "--report": ("write a page of HTML with errors, importances and partial dependence on the rows, which "
                 "must have the target", {"metavar": "FILE.html"}),
    "--force": ("replace any file", FLAG),
    "--raw": ("write labels that begin with = + - @, which spreadsheets may execute", FLAG),
    "--no-header": DATA["--no-header"],
}  # fmt: skip

EXPORT: Options = {
    "model": ("of a table, written by --save", {"metavar": "MODEL.npz"}),
    "out": ("write a header of C99 (.h) or a model for onnxruntime (.onnx)", {"metavar": "FILE"}),
    "--name": ("beginning of the names in the header (that of the file)", {"metavar": "NAME"}),
    "--force": PREDICT["--force"],
}  # fmt: skip
VERIFY: Options = {
    "--list": ("print the hashes of this machine, as lines of hforest/digests.txt", FLAG),
}  # fmt: skip
COMMANDS: dict[str, tuple[str, Options]] = {
    "predict": ("Print, or write to a file, what a model predicts for rows.", PREDICT),
    "export": ("Write a model of a table for programs without Python.", EXPORT),
    "verify": (
        "Compare hashes of results on this machine with those of the package; exit status 1 if one differs.",
        VERIFY,
    ),
}
"""Commands besides training: what they do, and their options."""


def _setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    for read in (json.loads, float):
        with suppress(ValueError):
            return name.replace("-", "_"), read(value)
    return name.replace("-", "_"), value


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of the command line."""
    command = arguments[0] if arguments and arguments[0] in COMMANDS else None
    what = (
        "Train a random hinge forest and random hinge ferns on digits, or on your data; predict applies them."
    )
    groups = {"data and error": DATA, "model and output": MODEL}
    if command is not None:
        what, of_command = COMMANDS[command]
        groups = {"options": of_command}
    parser = argparse.ArgumentParser(
        prog="python -m hforest" if command is None else f"python -m hforest {command}",
        description=what,
        epilog=EXAMPLES if command is None else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"hforest {__version__}")
    for title, options_of in groups.items():
        group = parser.add_argument_group(title)
        for name, (text, more) in options_of.items():
            more = more | {"type": _setting, "action": "extend"} if name == "--set" else more
            group.add_argument(name, help=text, **more)
    options = parser.parse_args(arguments if command is None else arguments[1:])
    if command is not None:
        options.kind, options.data = command, getattr(options, "data", None)
        return options
    if options.resume and options.save is None:
        parser.error("--resume needs --save MODEL.npz, the checkpoint to continue from")
    options.kind = options.kind or ("table" if options.data else None)
    if options.kind == "table":
        if not options.data:
            parser.error("--kind table needs --data FILE")
        if isinstance(options.plot, str) and Path(options.plot).suffix.lower() in _output.PICTURE_SUFFIXES:
            parser.error(
                "--plot FILE is for networks: pass --kind tree or fern, or the path of a folder for a table"
            )
        for name in ("resume",) if options.device == "cpu" else ("device",):
            if getattr(options, name):
                parser.error(f"--{name} is for networks: pass --kind tree or fern")
        return options
    for name in (
        "task",
        "target",
        "drop",
        "categorical",
        "null_values",
        "day_first",
        "no_header",
        "no_refit",
    ):
        if getattr(options, name):
            parser.error(f"--{name.replace('_', '-')} is for tables: leave it out, or pass --kind table")
    return options


def open_streams() -> None:
    """Opens the standard streams that the caller has closed, so that files do not get their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal may not have all characters


def drop_output() -> None:
    """Discards output that is still pending for a closed pipe, so that the exit is quiet."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command.

    Returns 0 on success, 2 for bad input or a full disk, 130 after an interrupt, and 141 (as after SIGPIPE)
    if the reader of its output has closed the pipe.
    """
    open_streams()
    status = 0
    try:
        try:
            status = work(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
        return 128 + getattr(signal, "SIGPIPE", 13)  # Windows has none
    except OSError as error:  # a full disk, which may have stopped the work before
        drop_output()
        if not status:
            print(f"error: {error}", file=sys.stderr)
        return status or 2
    return status


def work(arguments: list[str] | None) -> int:
    """Runs the command without the handling of standard streams in `main`."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    if options.kind == "verify":
        from . import _verify

        return _verify.run(options)
    commands = {"predict": _tables.predict, "export": _tables.export, "table": _tables.train}
    try:
        if (
            options.kind != "export"
            and options.data
            and not (options.kind in commands and has_columns(options.data))
        ):
            _output.check_archive(options.data)
        return commands.get(options.kind, _networks.train)(options)
    except BrokenPipeError:
        raise
    except (TypeError, ValueError, IndexError, OverflowError, OSError, ImportError, MemoryError) as error:
        _output.echo(f"error: {error}", error=True)
        return 2
    except KeyboardInterrupt:
        resumes = options.kind not in commands and options.save
        saved = "--resume goes on from the last checkpoint" if resumes else "nothing was saved"
        print(f"\ninterrupted; {saved}")
        return 130


if __name__ == "__main__":
    _interrupts.imported()
    # A file polars.py or csv.py beside the data is no module of the command.
    sys.path[:] = [folder for folder in sys.path if os.path.realpath(folder) != os.path.realpath(os.curdir)]
    sys.exit(main())
