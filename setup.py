"""Build of the extension modules: every `hforest/**/*.pyx`, found by glob, with one set of flags.

Environment variables:

HFOREST_OPENMP   "1": fail if OpenMP does not work; "0": build without OpenMP; unset: use it if it works.
HFOREST_DEBUG    "1": bounds-checked, unoptimised kernels with debug symbols; with HFOREST_SANITIZE only the
                 bounds are checked.
HFOREST_SANITIZE "address", "undefined" or "address,undefined": kernels with these sanitizers, which end the
                 process at the first error. Preload AddressSanitizer's runtime to run them:
                 ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=$(gcc -print-file-name=libasan.so) python ...
HFOREST_TARGET   such as "aarch64-linux-gnu": modules for this processor, by its compiler in CC and LDSHARED:
                 CC=aarch64-linux-gnu-gcc LDSHARED="aarch64-linux-gnu-gcc -shared". The headers of this Python
                 serve for every little-endian 64-bit Linux.
HFOREST_URL      the address of the repository, such as https://github.com/owner/hforest: links of the text
                 that an index of packages shows are then absolute, to the tag of this version.
"""

import copy
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import contextmanager
from pathlib import Path

import Cython
from Cython.Build import cythonize
from Cython.Build.Dependencies import create_dependency_tree
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
BUILD = Path("build")
SHARED = "hforest._cyutility"  # Cython's code for memoryviews, compiled once for all modules
DEBUG = os.environ.get("HFOREST_DEBUG", "0") == "1"
SANITIZE = os.environ.get("HFOREST_SANITIZE", "")
if SANITIZE not in ("", "address", "undefined", "address,undefined"):
    raise SystemExit(
        f"HFOREST_SANITIZE: expected address, undefined, address,undefined or unset, got {SANITIZE!r}"
    )

OPENMP = os.environ.get("HFOREST_OPENMP", "")
if OPENMP not in ("", "0", "1"):
    raise SystemExit(f"HFOREST_OPENMP: expected 0, 1 or unset, got {OPENMP!r}")

TARGET = os.environ.get("HFOREST_TARGET", "")
if TARGET and not (TARGET.endswith("-linux-gnu") and os.environ.get("CC") and os.environ.get("LDSHARED")):
    raise SystemExit(
        "HFOREST_TARGET: expected the name of a 64-bit Linux, as aarch64-linux-gnu, with CC and LDSHARED set "
        f"to its compiler, got {TARGET!r}; see the top of setup.py"
    )
if TARGET:
    # What sysconfig, and by it setuptools, returns as the platform in names of folders and wheels.
    os.environ["_PYTHON_HOST_PLATFORM"] = f"linux-{TARGET.removesuffix('-linux-gnu')}"
PLATFORM = sysconfig.get_platform()

URL = os.environ.get("HFOREST_URL", "").rstrip("/")
if URL and not URL.startswith("https://"):
    raise SystemExit(
        f"HFOREST_URL: expected an address, as https://github.com/owner/hforest, or unset, got {URL!r}"
    )


def long_description():
    """Returns README.md; with URL its relative links and pictures are those of the repository."""
    text = Path("README.md").read_text(encoding="utf-8")
    if not URL:
        return text
    version = re.search(r'__version__ = "(.+)"', Path("hforest/_version.py").read_text(encoding="utf-8"))[1]

    def absolute(match):
        return f"{match[0]}{URL}/{'raw' if match[0].startswith('!') else 'blob'}/v{version}/"

    return re.sub(r"!?\[[^]]*\]\((?!https?:|#)", absolute, text)


PROBE = r"""
#include <omp.h>
int main(void) {
    int total = 0;
    #pragma omp parallel for reduction(+ : total) num_threads(2)
    for (int i = 0; i < 100; ++i) total += i;
    return !(total == 4950 && omp_get_max_threads() >= 1);
}
"""

# Pairs of compile flags and link flags, in the order in which they are tried.
OPENMP_FLAGS = [(["-fopenmp"], ["-fopenmp"]), (["-Xpreprocessor", "-fopenmp"], ["-lomp"])]


@contextmanager
def probe(text):
    """Yields a C file with this text in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text(text, encoding="utf-8")
        yield source


def openmp_flags(compiler):
    """Returns the first flags with which a parallel loop compiles, links and runs correctly, or None.

    A program for another processor does not run.
    """
    for compile_flags, link_flags in OPENMP_FLAGS:
        with probe(PROBE) as source:
            folder = str(source.parent)
            try:
                objects = compiler.compile([str(source)], output_dir=folder, extra_postargs=compile_flags)
                compiler.link_executable(objects, "probe", output_dir=folder, extra_postargs=link_flags)
                if not TARGET:
                    subprocess.run([str(source.with_suffix(""))], check=True, timeout=60)
            except Exception as error:  # distutils raises a different class for each stage
                print(f"hforest: OpenMP probe with {compile_flags} failed: {error}", file=sys.stderr)
                continue
        return compile_flags, link_flags
    return None


PROCESSOR = "#if __SIZEOF_POINTER__ != 8 || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__\n#error\n#endif\n"


def check_compiler(compiler):
    """Ends the build, before a minute of translation, where it would fail."""
    for text, expected in (
        (
            "#include <Python.h>\n",
            "a C compiler and the headers of Python, got: {error}; install them, on Debian and Ubuntu by "
            "apt install gcc python3-dev, on macOS by xcode-select --install",
        ),
        (PROCESSOR, f"a 64-bit little-endian processor, such as x86-64 and aarch64, got {PLATFORM}"),
    ):
        with probe(text) as source:
            try:
                compiler.compile([str(source)], output_dir=str(source.parent))
            except Exception as error:
                raise SystemExit(f"hforest: expected {expected.format(error=error)}") from None


class Build(build_ext):
    """A build_ext that translates and compiles modules in parallel, and only those whose files have changed.

    Each set of flags has its own build folder, also in an editable installation.
    """

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()
        if sys.platform == "win32" and self.compiler is None:
            self.compiler = (
                "mingw32"  # GCC of MinGW-w64: the kernels use vector types, which MSVC does not have
            )
        platform = f"{PLATFORM}-{sys.implementation.cache_tag}"
        self.build_temp = str(BUILD / f"{platform}-openmp{OPENMP}{'-debug' * DEBUG}-{SANITIZE}".rstrip("-"))
        if self.inplace:
            self.build_lib = str(Path(self.build_temp, "lib"))

    def get_ext_filename(self, fullname):
        name = super().get_ext_filename(fullname)
        if not TARGET:
            return name
        suffix = f".{sys.implementation.cache_tag}-{TARGET}.so"
        return name.removesuffix(sysconfig.get_config_var("EXT_SUFFIX")) + suffix

    def build_extensions(self):
        check_compiler(self.compiler)
        flags = None if OPENMP == "0" else openmp_flags(self.compiler)
        if flags is None and OPENMP == "1":
            raise SystemExit(
                "HFOREST_OPENMP=1 but the compiler cannot build and run an OpenMP program; "
                "install its OpenMP runtime or unset the variable"
            )
        if flags is None:
            print("hforest: building without OpenMP: every function runs on one thread", file=sys.stderr)
            flags = ([], [])
        translate(self.extensions)
        for extension in self.extensions:
            extension.extra_compile_args += flags[0]
            extension.extra_link_args += flags[1]
            extension.depends = headers(Path(self.build_temp, extension.sources[0]).with_suffix(".d"))
        self.extensions.sort(key=lambda extension: -os.path.getsize(extension.sources[0]))
        super().build_extensions()

    def copy_extensions_to_source(self):
        self.force = True  # the copies in the source tree may be newer, but built with other flags
        super().copy_extensions_to_source()


def translate(extensions):
    """Writes the C code of modules whose files have changed, and makes it the source of every module."""
    folder = BUILD / f"cython-{Cython.__version__}{'-debug' * DEBUG}"
    tree = create_dependency_tree(quiet=True)
    stale = []
    for extension in extensions:
        source = extension.name.replace(".", "/")
        translated = folder / f"{source}.c"
        # Files of Cython itself are ignored: they are new in every environment that pip makes for a build.
        files = map(Path, tree.all_dependencies(f"{source}.pyx") if extension.sources else [])
        changed = [file.stat().st_mtime for file in files if file.resolve().is_relative_to(ROOT)]
        if not translated.exists() or translated.stat().st_mtime < max(changed, default=0):
            stale.append(copy.copy(extension))
        extension.sources = [str(translated)]
    cythonize(
        stale,
        force=True,
        nthreads=os.cpu_count(),
        compiler_directives={
            "language_level": 3,
            "binding": True,
            "freethreading_compatible": True,
            "boundscheck": DEBUG,
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
            "embedsignature": False,
            "emit_code_comments": False,
        },
        shared_utility_qualified_name=SHARED,
        build_dir=str(folder),
    )


def headers(depfile):
    """Returns the headers of the package that the compiler read last time; none before the first time."""
    listed = depfile.read_text(encoding="utf-8").split() if depfile.exists() else []
    return [path for path in listed if path.startswith("hforest")]


def extension(name, sources):
    """Returns an extension module with the project's flags."""
    import numpy

    # No -ffast-math, no -march=native, no contraction: results are bit-identical on all machines.
    flags = [
        "-std=gnu11",
        "-ffp-contract=off",
        "-fno-math-errno",
        "-falign-loops=64",  # a short vector loop across cache lines takes about 1.5 times as long
        "-MMD",  # lists the headers that each module reads
        "-Wall",
        "-Wno-unused-function",
        "-Wno-maybe-uninitialized",
    ]
    if sys.platform == "win32":
        # The Windows stack is aligned to 16 bytes, but GCC assumes 32 for vectors (GCC bug 54412).
        flags += ["-Wa,-muse-unaligned-vector-move", "-DMS_WIN64="]
    if SANITIZE:
        flags += ["-O1", "-g1", "-fno-omit-frame-pointer", f"-fsanitize={SANITIZE}", "-fno-sanitize-recover"]
    elif DEBUG:
        flags += ["-O0", "-g"]
    else:
        flags += ["-O3", "-g0"]
    return Extension(
        name,
        sources,
        include_dirs=[numpy.get_include(), "hforest"],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"), *[("HF_DEBUG", "1")][:DEBUG]],
        extra_compile_args=flags,
        extra_link_args=[f"-fsanitize={SANITIZE}"] if SANITIZE else [],
    )


os.chdir(ROOT)
paths = sorted(Path("hforest").rglob("*.pyx"))
if __name__ == "__main__":
    setup(
        ext_modules=[
            *(extension(".".join(path.with_suffix("").parts), [str(path)]) for path in paths),
            extension(SHARED, []),
        ],
        cmdclass={"build_ext": Build},
        long_description=long_description(),
        long_description_content_type="text/markdown",
        project_urls={"Source": URL} if URL else {},
    )
