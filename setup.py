"""What pyproject.toml cannot say: a shared library that is no Python module keeps its plain name."""

from pathlib import Path

from setuptools import setup
from setuptools_rust import Binding
from setuptools_rust.build import build_rust


class BuildRust(build_rust):
    """``polyduct.lib.libpolyduct`` becomes ``polyduct/lib/libpolyduct.so``, and not ``….abi3.so``."""

    def get_dylib_ext_path(self, ext, target_fname):
        path = Path(super().get_dylib_ext_path(ext, target_fname))
        if ext.binding == Binding.NoBinding:
            path = path.with_name(target_fname.rpartition(".")[2] + ".so")
        return str(path)


setup(cmdclass={"build_rust": BuildRust})
