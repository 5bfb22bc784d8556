# Functions that .ci/run and .ci/nightly share; sourced in the root of the checkout.
set -euo pipefail

work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1
# Modules and tests are translated once, not in each process, and are those of this checkout.
unset PYTHONDONTWRITEBYTECODE PYTHONPATH
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
marked() { grep -rl --include="test_*.py" "mark\.$1\b" tests lab; }

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

# requirements EXTRA...: the requirements of the package, of its build and of some of its extras; with OLDEST=1, the
# oldest minor release of each.
requirements() {
    "$PYTHON" - "$@" <<'END'
import os
import re
import sys
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)
extras = [project["project"]["optional-dependencies"][extra] for extra in sys.argv[1:]]
lines = [*project["build-system"]["requires"], *project["project"]["dependencies"], *sum(extras, [])]
if os.environ.get("OLDEST"):
    lines = [re.sub(r">=(\d+)(\.\d+)?.*", lambda m: f"=={m[1]}{m[2] or '.0'}.*", line) for line in lines]
print(*lines, sep="\n")
END
}

# environment FOLDER EXTRA...: creates a virtual environment without the package. Modules are translated when they are
# imported, because most of them never are.
environment() {
    "$PYTHON" -m venv "$1"
    requirements "${@:2}" > "$1/requirements.txt"
    "$1/bin/pip" install -q --no-compile -r "$1/requirements.txt"
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

# The build for aarch64 on another processor.
AARCH64=(HFOREST_TARGET=aarch64-linux-gnu CC=aarch64-linux-gnu-gcc "LDSHARED=aarch64-linux-gnu-gcc -shared")

# aarch64_system FOLDER PACKAGE...: a compiler for aarch64, an emulator, and in FOLDER the files of a system with these
# packages, in the releases of $work/kernels; FOLDER/bin/python3.11 runs its Python.
aarch64_system() {
    local folder=$1 name
    for name in qemu-aarch64-static aarch64-linux-gnu-gcc; do
        command -v "$name" > /dev/null || apt-get install -qq --no-install-recommends \
            qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross > /dev/null
    done
    [ "$(tag "$PYTHON")" = cpython-311 ] || {
        echo "$0: expected Python 3.11, that of Debian 12, got $("$PYTHON" -V); set PYTHON" >&2
        exit 2
    }
    if [ ! -e "$folder/complete" ]; then
        # apt with a state of its own: the packages of the machine stay as they are.
        mkdir -p "$folder"/{apt/{lists,archives}/partial,debs,root}
        touch "$folder/apt/status"
        for name in State Cache; do echo "Dir::$name \"$folder/apt\";"; done > "$folder/apt.conf"
        printf 'APT::Architecture "arm64";\nAPT::Architectures { "arm64"; };\nDir::State::status "%s/apt/status";\n' "$folder" >> "$folder/apt.conf"
        export APT_CONFIG=$folder/apt.conf
        apt-get update -qq
        (cd "$folder/debs" && apt-get download -qq libatomic1 libbz2-1.0 libc6 libcrypt1 libdb5.3 libexpat1 libffi8 libgcc-s1 libgomp1 \
            liblzma5 libncursesw6 libpython3.11-{minimal,stdlib} libreadline8 libsqlite3-0 libssl3 libstdc++6 libtinfo6 libuuid1 \
            media-types python3.11{,-minimal} zlib1g)
        unset APT_CONFIG
        for name in "$folder"/debs/*.deb; do dpkg -x "$name" "$folder/root"; done
        touch "$folder/complete"
    fi
    "$work/kernels/bin/pip" freeze | grep -i -E "^($(IFS='|'; echo "${*:2}"))==" > "$work/releases"
    "$work/kernels/bin/pip" install -q --upgrade --target "$folder/root/usr/lib/python3/dist-packages" --python-version 3.11 --only-binary :all: \
        --platform={manylinux_2_{28,27,17},manylinux2014}_aarch64 -r "$work/releases"
    # The Python of aarch64 starts itself by this file, too.
    mkdir -p "$folder/bin"
    printf '#!/bin/sh\nPYTHONHOME=%s/root/usr exec %s -L %s/root -0 %s/bin/python3.11 %s/root/usr/bin/python3.11 "$@"\n' \
        "$folder" "$(command -v qemu-aarch64-static)" "$folder" "$folder" "$folder" > "$folder/bin/python3.11"
    chmod +x "$folder/bin/python3.11"
}

# wheel PLATFORM NAME=VALUE...: makes a wheel of the source distribution in $work/dist, with the modules that were compiled
# from the same files in the checkout for this platform, such as linux-x86_64.
wheel() {
    local compiled folder=$work/wheel-$1
    compiled=build/$1-$(tag "$PYTHON")-openmp
    mkdir -p "$folder/build"
    tar -xzf "$work"/dist/hforest-*.tar.gz -C "$folder" --strip-components 1
    cp -r build/cython-* "$folder/build/"
    cp -r "$compiled" "$folder/build/"
    printf '[build]\nbuild_lib = %s/lib\n' "$compiled" >> "$folder/setup.cfg"
    (cd "$folder" && env "${@:2}" "$work/kernels/bin/python" -m pip wheel -q --no-deps --no-build-isolation -w "$work/dist" .)
}

# released PYTHON ARGUMENT...: checks an installed release by this Python, in an empty folder, without a compiler on the path.
released() {
    local version here=$PWD
    version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' hforest/_version.py)
    mkdir -p "$work/empty"
    (cd "$work/empty" && PATH=$work/empty "$@" "$here/.ci/smoke.py" "$version")
}
