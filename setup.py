"""Build of the extension modules: every `hforest/**/*.pyx`, found by glob, with one set of flags.

Environment variables:

HFOREST_OPENMP   "1": fail when OpenMP does not work; "0": build without it; unset: use it if it works.
HFOREST_DEBUG    "1": bounds-checked, unoptimised kernels with debug symbols.
HFOREST_SANITIZE "address", "undefined" or "address,undefined": kernels with these sanitizers, which end the
                 process at a finding. AddressSanitizer's runtime is preloaded to run them:
                 ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=$(gcc -print-file-name=libasan.so) python ...
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
DEBUG = os.environ.get("HFOREST_DEBUG", "0") == "1"
SANITIZE = os.environ.get("HFOREST_SANITIZE", "")
if SANITIZE not in ("", "address", "undefined", "address,undefined"):
    raise SystemExit(
        f"HFOREST_SANITIZE: expected address, undefined, address,undefined or unset, got {SANITIZE!r}"
    )

PROBE = r"""
#include <omp.h>
int main(void) {
    int total = 0;
    #pragma omp parallel for reduction(+ : total) num_threads(2)
    for (int i = 0; i < 100; ++i) total += i;
    return !(total == 4950 && omp_get_max_threads() >= 1);
}
"""

# Compile flags, link flags; tried in this order.
OPENMP_FLAGS = [(["-fopenmp"], ["-fopenmp"]), (["-Xpreprocessor", "-fopenmp"], ["-lomp"])]


def openmp_flags(compiler):
    """The first pair of flags with which a parallel loop compiles, links, runs and counts right."""
    for compile_flags, link_flags in OPENMP_FLAGS:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text(PROBE, encoding="utf-8")
            try:
                objects = compiler.compile([str(source)], output_dir=folder, extra_postargs=compile_flags)
                compiler.link_executable(objects, "probe", output_dir=folder, extra_postargs=link_flags)
                subprocess.run([str(Path(folder, "probe"))], check=True, timeout=60)
            except Exception as error:  # distutils raises a different class for each stage
                print(f"hforest: OpenMP probe with {compile_flags} failed: {error}", file=sys.stderr)
                continue
        return compile_flags, link_flags
    return None


class BuildWithOpenMP(build_ext):
    """build_ext that adds OpenMP's flags once the compiler is known, and compiles modules side by side."""

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()
        if sys.platform == "win32" and self.compiler is None:
            self.compiler = (
                "mingw32"  # GCC of MinGW-w64: the kernels use vector types that MSVC does not have
            )

    def build_extensions(self):
        wish = os.environ.get("HFOREST_OPENMP", "")
        if wish not in ("", "0", "1"):
            raise SystemExit(f"HFOREST_OPENMP: expected 0, 1 or unset, got {wish!r}")
        flags = None if wish == "0" else openmp_flags(self.compiler)
        if flags is None and wish == "1":
            raise SystemExit(
                "HFOREST_OPENMP=1 but the compiler cannot build and run an OpenMP program; "
                "install its OpenMP runtime or unset the variable"
            )
        if flags is None:
            print("hforest: building without OpenMP: every function runs on one thread", file=sys.stderr)
            flags = ([], [])
        for extension in self.extensions:
            extension.extra_compile_args += flags[0]
            extension.extra_link_args += flags[1]
        super().build_extensions()


def extension(path):
    import numpy

    # No -ffast-math, no -march=native, no contraction: every machine gives the same bits.
    flags = [
        "-std=gnu11",
        "-ffp-contract=off",
        "-fno-math-errno",
        "-falign-loops=32",  # a loop of few vectors takes half as long again across a boundary
        "-Wall",
        "-Wno-unused-function",
        "-Wno-maybe-uninitialized",
    ]
    if sys.platform == "win32":
        # The stack has 16 bytes of alignment there, and GCC takes it to have 32 for vectors (its bug 54412).
        flags += ["-Wa,-muse-unaligned-vector-move", "-DMS_WIN64="]
    if DEBUG:
        flags += ["-O0", "-g"]
    elif SANITIZE:
        flags += ["-O1", "-g1", "-fno-omit-frame-pointer", f"-fsanitize={SANITIZE}", "-fno-sanitize-recover"]
    else:
        flags += ["-O3", "-g0"]
    return Extension(
        ".".join(path.with_suffix("").parts),
        [str(path)],
        include_dirs=[numpy.get_include(), "hforest"],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"), *[("HF_DEBUG", "1")][:DEBUG]],
        depends=[str(header) for header in HEADERS],
        extra_compile_args=flags,
        extra_link_args=[f"-fsanitize={SANITIZE}"] if SANITIZE else [],
    )


os.chdir(ROOT)
HEADERS = sorted(Path("hforest").rglob("*.h"))
setup(
    ext_modules=cythonize(
        [extension(path) for path in sorted(Path("hforest").rglob("*.pyx"))],
        compiler_directives={
            "language_level": 3,
            "binding": True,
            "freethreading_compatible": True,
            "boundscheck": DEBUG,
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
            "embedsignature": False,
        },
        build_dir="build",
    ),
    cmdclass={"build_ext": BuildWithOpenMP},
)
