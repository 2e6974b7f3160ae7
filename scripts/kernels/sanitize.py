"""Build the compiled code with the address and undefined-behaviour sanitizers, and run it.

    python scripts/kernels/sanitize.py [RUNS] [SEED]
    python scripts/kernels/sanitize.py --quick

For every instruction set of this processor it runs RUNS random shapes (default 3,000; quick: 100),
half of them LSTMs and half GRUs, forward and backward, on arrays of
exactly the needed size. A tenth of that number of runs compare the kernels for matrix units (AMX)
with their AVX-512 replacement, bit by bit; without such units, their instructions trap and are
emulated by ``tile_traps.h``. Kernels for AVX-512 BF16, if the processor has it, must agree up to
rounding. Exits with 1 if a sanitizer finds an error, a result contains a number that was never
written, or bits differ.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from forecaster.swarm.native import compiling

HERE = Path(__file__).parent
FLAGS = [
    "-g", "-O1", "-std=c++17", "-fno-omit-frame-pointer", "-ffp-contract=fast", "-fno-math-errno",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-w", f"-I{compiling.HERE}",
]  # fmt: skip


def build(folder: Path, extra: Sequence[str] = ()) -> Path:
    """Compile the kernels and the program that runs them; return the program."""
    command = [*compiling.compiler(), *FLAGS]
    objects = []
    sets = {name: ("isa", flags) for name, flags in compiling.instruction_sets().items()}
    optional = compiling.bfloat16_sets()
    sets |= {name: ("bfloat16", flags) for name, (flags, _) in optional.items()}
    without: list[str] = []  # instruction sets that the compiler does not know
    for name, (source, flags) in sets.items():
        target = str(folder / f"{name}.o")
        path = str(compiling.HERE / f"{source}.cc")
        done = subprocess.run([*command, *flags, "-c", path, "-o", target], check=False)
        if not done.returncode:
            objects.append(target)
        elif name in optional and optional[name][1]:
            without.append(f"-DWITHOUT_{name.upper()}")
        else:
            done.check_returncode()
    program = folder / "sanitized"
    main = str(HERE / "sanitized.cc")
    subprocess.run([*command, *extra, *without, main, *objects, "-o", str(program)], check=True)
    return program


def main() -> int:
    given = ["100"] if "--quick" in sys.argv else sys.argv[1:] or ["3000"]
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        return subprocess.run([program, *given], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
