# Functions that .ci/run and .ci/nightly share; sourced in the root of the checkout.
set -euo pipefail

work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1
# Waiting threads do not spin, because two chains of steps share the cores.
export OMP_WAIT_POLICY=passive

# pythons: a line "3.13.0 /path" for each release of CPython from 3.11 on, on the PATH or of a version manager, that can
# make environments and build the package; the newest is the last.
pythons() {
    local folders file
    IFS=: read -ra folders <<< "$PATH"
    folders+=(
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin "${ASDF_DATA_DIR:-$HOME/.asdf}"/installs/python/*/bin
        ~/.local/share/{mise/installs/python,uv/python}/*/bin /opt/{conda,homebrew,python/*}/bin
        {~,/opt}/{.conda,{mini,ana}conda3,{mini,mamba}forge{,3}}/{,envs/*/}bin
    )
    find -L "${folders[@]}" -maxdepth 1 -name 'python3.[1-9][0-9]' 2> /dev/null | while IFS= read -r file; do
        "$file" - 2> /dev/null <<'END' || true
import ensurepip, os, sys, sysconfig
assert sys.implementation.name == "cpython" and sys.version_info.releaselevel == "final"
assert sys.version_info >= (3, 11)
assert sys.prefix == sys.base_prefix and not sysconfig.get_config_var("Py_GIL_DISABLED")
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
print(sys.version.split()[0], sys.executable)
END
    done | sort -V || true
}

# tag PYTHON: the part of the names of compiled files that says for which Python they are.
tag() { "$1" -c 'import sys; print(sys.implementation.cache_tag)'; }

# NEWEST runs README's commands. PYTHON runs all other steps; it is 3.11, the oldest that the package supports, where
# it is found. Each may be set in the environment instead.
found=$(pythons)
PYTHON=${PYTHON:-$(sed -n 's/^3\.11\.[0-9]* //p' <<< "$found" | tail -n 1)}
PYTHON=${PYTHON:-python3}
NEWEST=${NEWEST:-$(sed -n '$s/^[^ ]* //p' <<< "$found")}
NEWEST=${NEWEST:-$PYTHON}

# block N: prints the N-th fenced block of the README.
block() { awk -v n="$1" '/^```/ { if (inside) { inside = 0 } else { inside = 1; count++; next } } inside && count == n' README.md; }

# marked MARK: the test files that have a mark; the other files need not be imported, nor their libraries installed.
marked() { grep -l "mark\.$1\b" tests/test_*.py lab/fuzz/test_*.py; }

# step TEXT: begins a step, and adds the seconds of the previous step to the table.
chain="" name="" since=0
step() {
    [ -z "$name" ] || printf '%6d s  %s%s\n' $((SECONDS - since)) "$chain" "$name" >> "$work/table"
    name=$* since=$SECONDS
    printf '\n== %s (%ss)\n' "$*" "$SECONDS"
}

# await FILE PROCESS: waits until another chain has written a file; fails if its process ends without writing it.
await() {
    while kill -0 "$2" 2>/dev/null && [ ! -e "$1" ]; do sleep 1; done
    [ -e "$1" ]
}

# requirements EXTRA...: the requirements of the package, of its build and of some of its extras.
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

# environment FOLDER EXTRA...: creates a virtual environment without the package.
environment() {
    "$PYTHON" -m venv "$1"
    requirements "${@:2}" > "$1/requirements.txt"
    "$1/bin/pip" install -q -r "$1/requirements.txt"
}

# built FOLDER NAME=VALUE...: builds the modules in a copy of the checkout, from the C files of the checkout's build.
built() {
    if [ -d build ]; then
        mkdir -p "$1/build"
        cp -r build/cython-* "$1/build/"  # newer than the files it was made from
    fi
    (cd "$1" && env "${@:2}" "$work/kernels/bin/python" setup.py -q build_ext --inplace)
}

# kernels FOLDER ARGUMENT...: runs Python in such a copy.
kernels() { (cd "$1" && PYTHONPATH=$PWD "$work/kernels/bin/python" "${@:2}"); }

# sanitized ARGUMENT...: does the same with AddressSanitizer, which is preloaded only into Python. Leaks are not
# reported, because Python does not free all memory at exit; a failed allocation is a MemoryError, as in other builds;
# and pytest leaves stderr to the sanitizer's reports.
sanitized() {
    (
        cd "$work/asan"
        env PYTHONPATH="$PWD" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
            PYTEST_ADDOPTS=--capture=sys LD_PRELOAD="$(gcc -print-file-name=libasan.so)" "$work/kernels/bin/python" "$@"
    )
}
