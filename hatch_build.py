"""What hatchling does beside packing files: it compiles the kernels (native/build.py) and packs the library."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Kernels(BuildHookInterface):  # type: ignore[type-arg]
    """The library is built for this machine, or for TOPRANK_TARGET (a target of Zig's) with the tag TOPRANK_TAG."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """A compiler as a package, where the machine has none and where another machine is meant."""
        has_compiler = os.environ.get("CC") or (sys.platform != "win32" and shutil.which("cc"))
        return [] if has_compiler and not os.environ.get("TOPRANK_TARGET") else ["ziglang>=0.13"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library: into src/toprank for an editable installation, else beside, and into the wheel."""
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        spec = importlib.util.spec_from_file_location("native_build", root / "native" / "build.py")
        assert spec is not None
        assert spec.loader is not None
        native = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(native)
        target = os.environ.get("TOPRANK_TARGET")
        out = native.PACKAGE if version == "editable" else root / "build" / "kernels" / (target or "here")
        library = native.build(out, target)
        build_data["pure_python"] = False
        tag = os.environ.get("TOPRANK_TAG") or sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{tag}"
        if version != "editable":
            build_data["force_include"][str(library)] = f"toprank/{library.name}"
