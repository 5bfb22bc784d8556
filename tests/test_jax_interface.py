"""XLA's interface, which hforest.jax calls by ctypes, against the header of jaxlib; import errors."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
from test_jax import python, runtime_error

jax = pytest.importorskip("jax", minversion="0.5", reason="needs jax 0.5 or newer")

import jax.numpy as jnp  # noqa: E402

from hforest.jax import foreign  # noqa: E402

# --------------------------------------------------------------------------- XLA's interface


def test_declarations_agree_with_the_header_of_jaxlib(tmp_path):
    """Sizes, offsets and numbers of hforest/jax/foreign.h are those of the installed jaxlib."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    structs = {
        "extension": ("Extension_Base", {}),
        "version": ("Api_Version", {"extensions": "extension_start", "major": "major_version", "minor": "minor_version"}),
        "metadata": ("Metadata", {"version": "api_version", "traits": "traits"}),
        "metadata_extension": ("Metadata_Extension", {"metadata": "metadata"}),
        "error_arguments": ("Error_Create_Args", {"message": "message", "code": "errc"}),
        "api": ("Api", {"version": "api_version", "create_error": "XLA_FFI_Error_Create"}),
        "buffer": ("Buffer", {"dtype": "dtype", "data": "data", "rank": "rank", "dims": "dims"}),
        "text": ("ByteSpan", {"start": "ptr", "length": "len"}),
        "attributes": ("Attrs", {"size": "size", "types": "types", "names": "names", "values": "attrs"}),
        "call": ("CallFrame", {
            "api": "api", "stage": "stage", "arguments": "args", "results": "rets", "attributes": "attrs",
        }),
    }  # fmt: skip
    structs["extension"][1].update({"struct_size": "struct_size", "type": "type", "next": "next"})
    buffers = {"size": "size", "types": "types"}
    asserts = [
        f"static_assert(offsetof(hf_xla_{ours}, {a}) == offsetof(XLA_FFI_{theirs}, {b}), \"{ours}.{a}\");"
        for ours, theirs, fields in [
            *((ours, *rest) for ours, rest in structs.items()),
            ("buffers", "Args", buffers | {"buffers": "args"}),
            ("buffers", "Rets", buffers | {"buffers": "rets"}),
        ]
        for a, b in fields.items()
    ] + [
        f"static_assert(sizeof(hf_xla_{ours}) == sizeof(XLA_FFI_{theirs}), \"size of {ours}\");"
        for ours, theirs in [
            ("extension", "Extension_Base"), ("version", "Api_Version"), ("error_arguments", "Error_Create_Args"),
            ("buffer", "Buffer"), ("buffers", "Args"), ("buffers", "Rets"), ("attributes", "Attrs"), ("text", "ByteSpan"),
        ]
    ] + [
        f"static_assert((int)HF_XLA_{ours} == (int)XLA_FFI_{theirs}, \"{ours}\");"
        for ours, theirs in {
            "MAJOR": "API_MAJOR", "METADATA": "Extension_Metadata", "BUFFER": "ArgType_BUFFER",
            "STRING": "AttrType_STRING", "S32": "DataType_S32", "F32": "DataType_F32", "F64": "DataType_F64",
            "CANCELLED": "Error_Code_CANCELLED", "INVALID_ARGUMENT": "Error_Code_INVALID_ARGUMENT",
            "RESOURCE_EXHAUSTED": "Error_Code_RESOURCE_EXHAUSTED", "OUT_OF_RANGE": "Error_Code_OUT_OF_RANGE",
            "FAILED_PRECONDITION": "Error_Code_FAILED_PRECONDITION", "INTERNAL": "Error_Code_INTERNAL",
        }.items()
    ] + [
        "static_assert(HF_XLA_MINOR <= XLA_FFI_API_MINOR, \"minor\");",
        "static_assert(HF_XLA_BUFFER == (int)XLA_FFI_RetType_BUFFER, \"result\");",
    ]  # fmt: skip
    source = tmp_path / "agree.cc"
    source.write_text("\n".join(['#include "xla/ffi/api/c_api.h"', '#include "jax/foreign.h"', *asserts]))
    header = foreign.__file__.rsplit("jax", 1)[0]
    command = [compiler, "-std=c++17", "-fsyntax-only", f"-I{jax.ffi.include_dir()}", f"-I{header}"]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    source.write_text(
        source.read_text(encoding="utf-8").replace(
            "offsetof(hf_xla_buffer, rank)", "offsetof(hf_xla_buffer, dims)"
        )
    )
    assert subprocess.run([*command, str(source)], capture_output=True).returncode != 0, (
        "the test sees a difference"
    )


Pointer, Size, Int = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class Version(ctypes.Structure):
    _fields_ = [("struct_size", Size), ("extensions", Pointer), ("major", Int), ("minor", Int)]


class ErrorArguments(ctypes.Structure):
    _fields_ = [("struct_size", Size), ("extensions", Pointer), ("message", ctypes.c_char_p), ("code", Int)]


CreateError = ctypes.CFUNCTYPE(Pointer, ctypes.POINTER(ErrorArguments))


class Api(ctypes.Structure):
    _fields_ = [
        ("struct_size", Size), ("extensions", Pointer), ("version", Version), ("internal", Pointer),
        ("create_error", CreateError),
    ]  # fmt: skip


class List(ctypes.Structure):
    _fields_ = [("struct_size", Size), ("extensions", Pointer), ("size", ctypes.c_int64), ("types", Pointer), ("items", Pointer)]  # fmt: skip


class Attributes(ctypes.Structure):
    _fields_ = [*List._fields_, ("values", Pointer)]


class Call(ctypes.Structure):
    _fields_ = [
        ("struct_size", Size), ("extensions", Pointer), ("api", ctypes.POINTER(Api)), ("context", Pointer), ("stage", Int),
        ("arguments", List), ("results", List), ("attributes", Attributes),
    ]  # fmt: skip


class Metadata(ctypes.Structure):
    _fields_ = [("struct_size", Size), ("version", Version), ("traits", ctypes.c_uint32)]


class MetadataExtension(ctypes.Structure):
    _fields_ = [
        ("struct_size", Size),
        ("type", Int),
        ("next", Pointer),
        ("metadata", ctypes.POINTER(Metadata)),
    ]


def handler():
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = Pointer, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(Pointer, ctypes.POINTER(Call))(address(foreign.capsule(), None))


def frame(major=0, **fields):
    """Returns a call frame of a runtime of this version, and the list of errors that the handler creates."""
    errors = []

    def create(arguments):
        errors.append((arguments.contents.code, arguments.contents.message.decode()))
        return 1

    keep = CreateError(create)
    api = Api(ctypes.sizeof(Api), None, Version(ctypes.sizeof(Version), None, major, 7), None, keep)
    call = Call(struct_size=ctypes.sizeof(Call), api=ctypes.pointer(api), stage=3, **fields)
    return call, errors


def test_the_handler_tells_its_version():
    metadata = Metadata(struct_size=ctypes.sizeof(Metadata), traits=99)
    extension = MetadataExtension(ctypes.sizeof(MetadataExtension), 1, None, ctypes.pointer(metadata))
    call, errors = frame(extensions=ctypes.addressof(extension))
    call.api = None  # not every runtime passes this
    assert handler()(ctypes.byref(call)) is None
    assert (metadata.version.major, metadata.version.minor) == foreign.VERSION == (0, 1)
    assert metadata.traits == 0
    assert not errors


def test_another_major_version_is_refused():
    call, errors = frame(major=1)
    assert handler()(ctypes.byref(call)) == 1
    ((code, text),) = errors
    assert code == 9
    assert text == (
        "hforest.jax: expected version 0 of XLA's foreign functions, got another one; "
        "install a jaxlib of that version"
    )


def test_a_shorter_call_frame_is_refused():
    call, errors = frame()
    call.struct_size -= 8
    assert handler()(ctypes.byref(call)) == 1
    assert errors[0][0] == 9


def test_programs_of_others_are_refused():
    def call(a, **attributes):
        shape = jax.ShapeDtypeStruct((2,), jnp.float32)
        return runtime_error(
            lambda: jax.jit(lambda a: jax.ffi.ffi_call("hforest", shape)(a, **attributes))(a)
        )

    a = jnp.zeros(2)
    assert "expected the attribute function, got none" in call(a)
    assert "expected the attribute function, got none" in call(a, function=np.int32(3))
    assert "expected one of hinge_forest, " in call(a, function="plant", setting="")
    assert "expected buffers of float32, float64 or int32" in call(a > 0, function="hinge_forest", setting="")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("sys.modules['jax'] = None", "hforest.jax: expected JAX 0.5 or newer, got none; install it with pip install -e '.[jax]' in the checkout"),
        ("import jax; del jax.ffi; sys.modules['jax.ffi'] = None", "hforest.jax: expected JAX 0.5 or newer, got "),
        (
            "import jax.ffi\ndef refuse(*a, **k): raise ValueError('version 0.1')\njax.ffi.register_ffi_target = refuse",
            "hforest.jax: expected a JAX version that supports version 0.1 of the foreign function interface, got ",
        ),
    ],
    ids=["no jax", "old jax", "other version"],
)  # fmt: skip
def test_import_errors_tell_the_remedy(change, text):
    code = f"""
import sys
{change}
try:
    import hforest.jax
except ImportError as error:
    print(error)
"""
    assert python(code).startswith(text)


def test_hforest_does_not_import_jax():
    assert (
        python("import sys, hforest; print('jax' in sys.modules, 'hforest.jax' in sys.modules)").split()
        == ["False"] * 2
    )
