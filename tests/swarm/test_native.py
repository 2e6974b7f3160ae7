"""The compiled kernel against JAX alone, for every instruction set that this machine has."""

import functools
import os
import re
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster import swarm
from forecaster.swarm.native import compiling, library
from forecaster.swarm.native.compiling import NOT_BUILT, CompileError, compile_kernel
from forecaster.swarm.recurrence import gru, lstm
from forecaster.swarm.recurrence.lstm import jax_lstm
from tests.messages import refuses
from tests.slow import slow
from tests.swarm.problems import CELLS, outputs, problem
from tests.swarm.processes import run_python

swarm.use_all_cores()  # before the status starts JAX
if os.environ.get("FORECASTER_REQUIRE_KERNEL"):  # set for wheels
    assert library.kernel_status()[0], library.kernel_status()[1]
needs_kernel = pytest.mark.skipif(
    library.kernel_status()[0] is None, reason=library.kernel_status()[1]
)


def compare(recurrence, oracle, *arrays, last_only=False):
    """Compare values and gradients of many members."""
    reference = (lambda *a: oracle(*a)[-1]) if last_only else oracle
    got = outputs(functools.partial(recurrence, last_only=last_only), arrays)
    for a, b in zip(got, outputs(reference, arrays), strict=True):
        tolerance = 2e-6 * max(1.0, float(jnp.abs(b).max()))
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=tolerance * 5)


few = settings(max_examples=4, deadline=None)
any_sizes = given(sizes=st.tuples(
    st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 7), st.integers(1, 14),
    st.integers(1, 6), st.sampled_from([1, 5, 7, 8, 9, 16, 17, 31, 32, 40, 50, 64, 70]),
    st.booleans(),
))  # fmt: skip


def check_cell(cell, seed, members, steps, batch, features, hidden, last_only):
    arrays = problem(seed, members, steps, batch, features, hidden, cell[0])
    compare(*cell, *arrays, last_only=last_only)


@needs_kernel
@pytest.mark.parametrize("cell", CELLS, ids=["lstm", "gru"])
@few
@any_sizes
def test_values_and_gradients_are_those_of_jax(cell, sizes):
    check_cell(cell, *sizes)


@needs_kernel
@pytest.mark.slow
@pytest.mark.parametrize("instructions", ["avx2", "plain"])
def test_lesser_instruction_sets_agree_too(instructions):
    code = (
        "from tests.swarm.test_native import *\n"
        "assert library.kernel_status()[0] in ('plain', 'neon', 'avx2'), library.kernel_status()\n"
        "for hidden in (3, 8, 16, 21):\n"
        "    for cell, oracle in CELLS:\n"
        "        compare(cell, oracle, *problem(hidden, 2, 4, 7, 2, hidden, cell))\n"
        "print(library.kernel_status()[0])"
    )
    runs = run_python(code, FORECASTER_KERNEL=instructions).strip()
    assert runs in (instructions, "neon", "plain")


@pytest.mark.usefixtures("unchecked")
def test_shapes_that_do_not_fit_are_an_error():
    kernel, bias, inputs, valid, _ = (a[0] for a in problem(2, 1, 4, 3, 2, 5))
    for wrong in ((kernel[1:], bias, inputs, valid), (kernel, bias, inputs, valid.T)):
        with refuses(ValueError):
            lstm(*wrong)
    with refuses(ValueError):
        lstm(kernel, bias[1:], inputs, valid)


def test_other_types_are_left_to_jax():
    with jax.enable_x64(True):
        arrays = [jnp.asarray(a[0], float) for a in problem(2, 1, 4, 3, 2, 5)]
        assert not library.usable(*arrays)
        assert lstm(*arrays[:4]).dtype == np.float64
    half = [a[0].astype("bfloat16") for a in problem(2, 1, 4, 3, 2, 5)[:4]]
    assert lstm(*half).dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("missing", "there was no C"),
        ("of nothing", "it cannot be loaded"),
        ("turned off", "turned off by FORECASTER_KERNEL"),
        ("misspelt", "FORECASTER_KERNEL is 'AVX1024'; expected off, plain, avx2, avx512"),
        ("not built", "it was not built: the compiler was out of order"),
    ],
)
def test_without_a_kernel_jax_does_it_and_says_why(what, reason, tmp_path, monkeypatch):
    file = tmp_path / "_kernels.so"
    if what == "of nothing":
        file.write_bytes(b"garbage")
    if what == "not built":
        file.with_name(NOT_BUILT).write_text("the compiler was out of order\n")
    monkeypatch.delenv("FORECASTER_KERNEL", raising=False)
    if what in ("turned off", "misspelt"):
        monkeypatch.setenv("FORECASTER_KERNEL", {"turned off": "off"}.get(what, "AVX1024"))
    before = library.kernel_status()
    monkeypatch.setattr(library, "_LIBRARY", file)
    library.kernel_status.cache_clear()
    try:
        assert library.kernel_status()[0] is None and re.search(reason, library.kernel_status()[1])
        kernel, bias, inputs, valid, _ = (a[0] for a in problem(3, 1, 4, 3, 2, 5))
        np.testing.assert_array_equal(
            lstm(kernel, bias, inputs, valid), jax_lstm(kernel, bias, inputs, valid)
        )
    finally:
        monkeypatch.undo()
        library.kernel_status.cache_clear()
        assert library.kernel_status() == before


def test_a_compiler_that_is_missing_or_broken_is_one_clear_error(tmp_path, monkeypatch):
    output = tmp_path / "kernel.so"
    monkeypatch.setenv("PATH", str(tmp_path))
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'fatal error: out of order' >&2\nexit 1\n")
    broken.chmod(0o755)
    for command in ("", str(tmp_path / "c++"), 'c++ "', str(broken)):
        monkeypatch.setenv("CXX", command)
        with refuses(CompileError):
            compile_kernel(output)
    assert not output.exists() and not list(tmp_path.glob(".kernel*"))


@needs_kernel
@pytest.mark.parametrize("cell", [lstm, slow(gru)])
def test_derivatives_that_compiled_code_lacks_are_a_named_error(cell):
    *arrays, _ = problem(0, 1, 4, 2, 3, 5, cell)
    *weights, inputs, valid = (array[0] for array in arrays)

    def summed(x, **options):
        return cell(*weights, x, valid, **options).sum()

    def twice(x):
        return jax.grad(lambda x: (jax.grad(summed)(x) ** 2).sum())(x)

    for derivative in (twice, lambda x: jax.jvp(jax.grad(summed), (x,), (x,))):
        with refuses(swarm.SwarmError):
            derivative(inputs)
    plain = functools.partial(summed, compiled=False)
    np.testing.assert_allclose(plain(inputs), summed(inputs), rtol=1e-5)
    step = 1e-2 * np.ones_like(inputs)
    difference = (jax.grad(plain)(inputs + step) - jax.grad(plain)(inputs - step)) / 2e-2
    curve = jax.jvp(jax.grad(plain), (inputs,), (np.ones_like(inputs),))[1]
    np.testing.assert_allclose(curve, difference, rtol=0.05, atol=2e-3)


SAME_LAYOUT = """
#include "xla/ffi/api/c_api.h"
#include "xla_ffi.h"
using namespace ffi::c;
#define SAME(ours, our_field, theirs, their_field)                                     \\
  static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) &&          \\
                sizeof(ours::our_field) == sizeof(theirs::their_field), #ours "." #our_field)
SAME(Extension, type, XLA_FFI_Metadata_Extension, extension_base.type);
SAME(MetadataExtension, metadata, XLA_FFI_Metadata_Extension, metadata);
SAME(Metadata, struct_size, XLA_FFI_Metadata, struct_size);
SAME(Metadata, version, XLA_FFI_Metadata, api_version);
SAME(Metadata, traits, XLA_FFI_Metadata, traits);
SAME(Metadata, state_type, XLA_FFI_Metadata, state_type_id);
SAME(Version, major, XLA_FFI_Api_Version, major_version);
SAME(Version, minor, XLA_FFI_Api_Version, minor_version);
SAME(NewError, message, XLA_FFI_Error_Create_Args, message);
SAME(NewError, code, XLA_FFI_Error_Create_Args, errc);
SAME(Api, new_error, XLA_FFI_Api, XLA_FFI_Error_Create);
SAME(Buffer, dtype, XLA_FFI_Buffer, dtype);
SAME(Buffer, data, XLA_FFI_Buffer, data);
SAME(Buffer, rank, XLA_FFI_Buffer, rank);
SAME(Buffer, sizes, XLA_FFI_Buffer, dims);
SAME(Text, at, XLA_FFI_ByteSpan, ptr);
SAME(Text, size, XLA_FFI_ByteSpan, len);
SAME(Scalar, dtype, XLA_FFI_Scalar, dtype);
SAME(Scalar, value, XLA_FFI_Scalar, value);
SAME(Arrays, size, XLA_FFI_Args, size);
SAME(Arrays, types, XLA_FFI_Args, types);
SAME(Arrays, values, XLA_FFI_Args, args);
SAME(Arrays, values, XLA_FFI_Rets, rets);
SAME(Attributes, size, XLA_FFI_Attrs, size);
SAME(Attributes, types, XLA_FFI_Attrs, types);
SAME(Attributes, names, XLA_FFI_Attrs, names);
SAME(Attributes, values, XLA_FFI_Attrs, attrs);
SAME(Frame, extensions, XLA_FFI_CallFrame, extension_start);
SAME(Frame, api, XLA_FFI_CallFrame, api);
SAME(Frame, stage, XLA_FFI_CallFrame, stage);
SAME(Frame, arguments, XLA_FFI_CallFrame, args);
SAME(Frame, results, XLA_FFI_CallFrame, rets);
SAME(Frame, attributes, XLA_FFI_CallFrame, attrs);
static_assert(METADATA == XLA_FFI_Extension_Metadata && EXECUTE == XLA_FFI_ExecutionStage_EXECUTE);
static_assert(BUFFER == XLA_FFI_ArgType_BUFFER && BUFFER == XLA_FFI_RetType_BUFFER);
static_assert(SCALAR == XLA_FFI_AttrType_SCALAR && TEXT == XLA_FFI_AttrType_STRING);
static_assert(PRED == XLA_FFI_DataType_PRED && U16 == XLA_FFI_DataType_U16);
static_assert(U32 == XLA_FFI_DataType_U32 && F32 == XLA_FFI_DataType_F32);
static_assert(int(ffi::Code::invalid_argument) == XLA_FFI_Error_Code_INVALID_ARGUMENT);
static_assert(int(ffi::Code::failed_precondition) == XLA_FFI_Error_Code_FAILED_PRECONDITION);
"""


@pytest.mark.parametrize("fault", ["", "Frame, stage", "Buffer, data"])
def test_the_layout_of_calls_is_that_of_the_installed_jaxlib(fault, tmp_path):
    try:
        command = compiling.compiler()
    except CompileError:
        pytest.skip("no C++ compiler")
    source = tmp_path / "same.cc"
    wrong = re.sub(rf"(SAME\({fault}, \w+, )\w+", r"\g<1>struct_size", SAME_LAYOUT)
    source.write_text(wrong if fault else SAME_LAYOUT)
    includes = [f"-I{jax.ffi.include_dir()}", f"-I{compiling.HERE}"]
    done = subprocess.run(
        [*command, "-std=c++17", "-w", "-fsyntax-only", *includes, str(source)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if fault:
        assert done.returncode and fault.replace(", ", ".") in done.stderr
    else:
        assert not done.returncode, done.stderr


def test_an_instruction_set_that_the_compiler_lacks_is_left_out(tmp_path, monkeypatch):
    lines: list[list[str]] = []

    def run(line):
        lines.append(line)
        if line[-1].endswith("/amx.o"):
            raise compiling.CompileError("no AMX")
        Path(line[-1] if "-c" in line else line[line.index("-o") + 1]).touch()

    monkeypatch.setattr(compiling, "_run", run)
    monkeypatch.setattr(compiling, "compiler", lambda: ["c++"])
    monkeypatch.setattr(compiling.platform, "machine", lambda: "x86_64")
    compiling.compile_kernel(tmp_path / "kernels.so")
    (last,) = [line for line in lines[:-1] if line[-1].endswith("/bfloat16_ffi.o")]
    assert "-DWITHOUT_AMX" in last and not any("/amx.o" in part for part in lines[-1])
