"""Build hook: compiles the recurrence's kernel into the wheel where there is a C++ compiler.

Where there is none, or it fails, the package installs all the same and runs on JAX alone.
"""

import importlib.util
import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NATIVE = "forecaster/swarm/recurrence/native"


class KernelHook(BuildHookInterface):
    """Adds the compiled kernel to wheels; editable installations find it in the source tree."""

    def initialize(self, version, build_data):
        """Compile before the wheel is put together."""
        if self.target_name != "wheel":
            return
        native = Path(self.root) / _NATIVE
        spec = importlib.util.spec_from_file_location("compiling", native / "compiling.py")
        compiling = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(compiling)
        output = native / compiling.NAME
        reason = native / compiling.NOT_BUILT
        reason.unlink(missing_ok=True)
        try:
            compiling.compile_kernel(output)
        except compiling.CompileError as error:
            output.unlink(missing_ok=True)  # an older one would not match the sources
            self.app.display_warning(f"The compiled kernel is left out: {error}")
            reason.write_text(f"{error}\n")
            if version != "editable":
                build_data["force_include"][str(reason)] = f"{_NATIVE}/{reason.name}"
            return
        if version != "editable":
            build_data["force_include"][str(output)] = f"{_NATIVE}/{compiling.NAME}"
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"  # loaded by ctypes: any Python will do
