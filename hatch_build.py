"""What hatchling does beside packing files: it compiles the kernels (native/build.py) and packs the library."""

from __future__ import annotations

import importlib.util
import os
import platform
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Kernels(BuildHookInterface):  # type: ignore[type-arg]
    """The library is built for this machine, or for TOPRANK_TARGET, one of `TARGETS` in native/build.py."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """A compiler as a package, where the machine has none and where another machine is meant."""
        if self.target_name != "wheel":
            return []
        here = not os.environ.get("TOPRANK_TARGET") and self._native().system_compiler() is not None
        return [] if here else ["ziglang>=0.13"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library: into src/toprank for an editable installation, else beside, and into the wheel."""
        if self.target_name != "wheel":
            return
        native, target = self._native(), os.environ.get("TOPRANK_TARGET")
        tag = _this_platform() if not target else native.TARGETS[target]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"
        if version == "editable":
            native.build(native.PACKAGE)
            return
        library = native.build(Path(self.root) / "build" / "kernels" / (target or "here"), target)
        build_data["force_include"][str(library)] = f"toprank/{library.name}"

    def _native(self) -> Any:
        spec = importlib.util.spec_from_file_location("native_build", Path(self.root) / "native" / "build.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def _this_platform() -> str:
    """The tag of this machine. A Python of macOS may be for two processors; the library is for the one that runs it."""
    name = sysconfig.get_platform()
    if name.startswith("macosx"):
        name = f"{name.rpartition('-')[0]}-{platform.machine()}"
    return name.replace("-", "_").replace(".", "_")
