"""`pip install ./lib` leaves nothing here: copies of modules in lib/build would be packed and found again."""

import tempfile

import setuptools  # type: ignore[import-untyped]

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        setuptools.setup(options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}})
