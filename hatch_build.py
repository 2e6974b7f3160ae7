"""Build hook: add to the wheel the files that are not in the sources.

- the compiled kernels of recurrences and random keys; if there is no C++ compiler, or it fails, the
  package is installed without them and runs on JAX alone
- uPlot, the JavaScript library that draws the figures of HTML pages, from uplot-python
"""

import importlib.util
import shutil
import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NATIVE = "forecaster/swarm/native"
_UPLOT = "forecaster/report/uplot.js"


class ArtifactsHook(BuildHookInterface):
    """Add both to wheels; editable installations find them in the source tree."""

    def initialize(self, version, build_data):
        """Make the files before the wheel is built."""
        if self.target_name != "wheel":
            return
        self._add_uplot(version, build_data)
        self._add_kernel(version, build_data)

    def _add_uplot(self, version, build_data):
        (package,) = importlib.util.find_spec("uplot").submodule_search_locations
        copy = Path(self.root) / _UPLOT
        shutil.copyfile(Path(package) / "static" / "uPlot.iife.js", copy)
        if version != "editable":
            build_data["force_include"][str(copy)] = _UPLOT

    def _add_kernel(self, version, build_data):
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
