# What .ci/run and .ci/nightly share; sourced in the root of the checkout.
set -euo pipefail

work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
PYTHON=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1
# Threads that wait do not spin: two chains share the cores.
export OMP_WAIT_POLICY=passive

# marked MARK: the files of tests that have a mark. The others need not be imported, with the libraries that they are for.
marked() { grep -l "mark\.$1\b" tests/test_*.py tests/fuzz/test_*.py; }

# step TEXT: begins a step; the seconds of the one before it go into the table.
chain="" name="" since=0
step() {
    [ -z "$name" ] || printf '%6d s  %s%s\n' $((SECONDS - since)) "$chain" "$name" >> "$work/table"
    name=$* since=$SECONDS
    printf '\n== %s (%ss)\n' "$*" "$SECONDS"
}

# await FILE PROCESS: waits until another chain has written a file; fails where its process ends without.
await() {
    while kill -0 "$2" 2>/dev/null && [ ! -e "$1" ]; do sleep 1; done
    [ -e "$1" ]
}

# requirements EXTRA...: what the package, its build and some of its extras ask for.
requirements() {
    "$PYTHON" - "$@" <<'END'
import sys
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)
extras = [project["project"]["optional-dependencies"][extra] for extra in sys.argv[1:]]
print(*project["build-system"]["requires"], *project["project"]["dependencies"], *sum(extras, []), sep="\n")
END
}

# environment FOLDER EXTRA...: a virtual environment without the package.
environment() {
    "$PYTHON" -m venv "$1"
    requirements "${@:2}" > "$1/requirements.txt"
    "$1/bin/pip" install -q -r "$1/requirements.txt"
}

# built FOLDER NAME=VALUE...: builds the modules in a copy of the checkout, from the C of the checkout's build.
built() {
    if [ -d build ]; then
        mkdir -p "$1/build"
        cp -r build/cython-* "$1/build/"  # younger than the files that it was made from
    fi
    (cd "$1" && env "${@:2}" "$work/kernels/bin/python" setup.py -q build_ext --inplace)
}

# kernels FOLDER ARGUMENT...: Python in such a copy.
kernels() { (cd "$1" && PYTHONPATH=$PWD "$work/kernels/bin/python" "${@:2}"); }

# sanitized ARGUMENT...: the same with AddressSanitizer, preloaded into Python alone. Python does not free all memory at
# its end. Memory that there is not is a MemoryError there too. pytest leaves stderr to its reports.
sanitized() {
    (
        cd "$work/asan"
        env PYTHONPATH="$PWD" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
            PYTEST_ADDOPTS=--capture=sys LD_PRELOAD="$(gcc -print-file-name=libasan.so)" "$work/kernels/bin/python" "$@"
    )
}
