"""Compile the kernel with the machine's C++ compiler. Needs nothing else.

Run as a script, or by the package's build (``hatch_build.py``): python compiling.py OUTPUT
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
NAME = "_kernels.so"
NOT_BUILT = "not_built.txt"  # holds the reason if the library was not built
_COMMON = "-O3 -std=c++17 -fPIC -ffp-contract=fast -fno-math-errno -w"
# Instruction set: flags, floats per vector, rows per tile (6 with 32 registers).
_X86 = {
    "avx512": (
        "-mavx512f -mavx512dq -mavx512vl -mavx2 -mfma -mprefer-vector-width=512", 16, 6
    ),
    "avx2": ("-mavx2 -mfma", 8, 3),
    "plain": ("", 4, 3),
}  # fmt: skip
_OTHER = {"plain": ("", 4, 6)}
# Kernels of bfloat16: flags beyond those of AVX-512, and whether the build may omit them, because
# some compilers do not know their instructions.
_BFLOAT16 = {
    "avx512_bf16": ("-mavx512bf16", True),  # takes longest to compile, so it is begun first
    "amx_emulated": ("-DEMULATED_TILES", False),
    "amx": ("", True),
}


class CompileError(Exception):
    """The kernel cannot be compiled here; the message gives the reason."""


def compile_kernel(output: Path) -> Path:
    """Compile for every instruction set of this processor family into one shared library.

    As many files are compiled at once as there are cores.

    The best one is chosen when the library is loaded. Raises CompileError, and leaves no file then.
    """
    try:
        return _compile(compiler(), output)
    except OSError as error:  # CXX is not a command, or the folder is read-only
        raise CompileError(str(error)) from error


def _compile(command: list[str], output: Path) -> Path:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_cores()) as threads:
        common = [*command, *_COMMON.split(), f"-I{HERE}", "-c"]

        def begin(name: str, source: str, flags: list[str]) -> Future[str]:
            target = str(Path(folder) / f"{name}.o")
            line = [*common, *flags, str(HERE / source), "-o", target]
            return threads.submit(lambda: (_run(line), target)[1])

        bfloat16 = bfloat16_sets().items()
        tried = [(name, begin(name, "bfloat16.cc", of[0]), of[1]) for name, of in bfloat16]
        begun = [begin(name, "isa.cc", flags) for name, flags in instruction_sets().items()]
        begun.append(begin("ffi", "ffi.cc", []))
        defined: list[str] = []
        for name, compiled, optional in tried:
            if compiled.exception() is None or not optional:
                begun.append(compiled)
            else:
                defined.append(f"-DWITHOUT_{name.upper()}")
        begun.append(begin("bfloat16_ffi", "bfloat16_ffi.cc", defined))
        objects = [compiled.result() for compiled in begun]
        library = Path(folder) / NAME
        _run([*command, "-shared", "-o", str(library), *objects])
        output.parent.mkdir(parents=True, exist_ok=True)
        temporary = output.with_name(f".{output.name}.{os.getpid()}")
        shutil.copyfile(library, temporary)
        temporary.replace(output)  # processes that use the old file keep it
    return output


def _cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def compiler() -> list[str]:
    """Return the C++ compiler's command: ``CXX``, or one that is installed. Raises CompileError."""
    named = os.environ.get("CXX", "")
    try:
        if command := shlex.split(named):
            return command
    except ValueError as error:  # an open quotation
        raise CompileError(f"CXX: expected the command of a C++ compiler; got {named!r}") from error
    if os.name == "nt":
        raise CompileError("not built on Windows")
    for name in ("c++", "g++", "clang++"):
        if path := shutil.which(name):
            return [path]
    raise CompileError("no C++ compiler found (tried c++, g++, clang++)")


def instruction_sets() -> dict[str, list[str]]:
    """Return the compiler's flags for each instruction set of this processor family."""
    sets = _X86 if platform.machine().lower() in ("x86_64", "amd64") else _OTHER
    return {
        name: [*flags.split(), f"-DISA_NAME={name}", f"-DVECTOR={vector}", f"-DMOST_ROWS={rows}"]
        for name, (flags, vector, rows) in sets.items()
    }


def bfloat16_sets() -> dict[str, tuple[list[str], bool]]:
    """Return each bfloat16 kernel's compiler flags, and whether the build may omit it.

    Empty for processor families without such kernels.
    """
    sets = instruction_sets()
    if "avx512" not in sets:
        return {}
    base = [flag for flag in sets["avx512"] if not flag.startswith("-DISA_NAME")]
    return {
        name: ([*base, f"-DISA_NAME={name}", *flags.split()], optional)
        for name, (flags, optional) in _BFLOAT16.items()
    }


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"{command[0]} cannot be run: {error}") from error
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr)
        raise CompileError(f"{command[0]} failed: {first.strip()[:300]}")


if __name__ == "__main__":
    try:
        compile_kernel(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / NAME)
    except CompileError as error:
        sys.exit(f"The kernel was not built: {error}")
