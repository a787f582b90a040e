"""What ./dev and the checks of the tree tell."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True

import check_layers  # noqa: E402
import check_sizes  # noqa: E402


def tree(files):
    """A temporary folder with these files; keep the object as long as it is needed."""
    folder = tempfile.TemporaryDirectory()
    for name, text in files.items():
        path = pathlib.Path(folder.name) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def layer_faults(files):
    with tree(files) as folder:
        return check_layers.check(pathlib.Path(folder))


def size_faults(files):
    with tree(files) as folder:
        return check_sizes.check(pathlib.Path(folder))


class LayersTest(unittest.TestCase):
    def test_include_to_the_left_is_right(self):
        self.assertEqual(layer_faults({"hfta/lanes/a.cpp": '#include "hfta/ops/b.h"\n#include "hfta/lanes/c.h"\n'}), [])

    def test_include_to_the_right_is_told(self):
        self.assertEqual(
            layer_faults({"hfta/ops/a.cpp": '#include <vector>\n#include "hfta/lanes/b.h"\n'}),
            ['hfta/ops/a.cpp:2: ops includes "hfta/lanes/b.h", but lanes is not to its left'],
        )

    def test_neighbours_do_not_see_each_other(self):
        self.assertEqual(
            layer_faults({"hfta/data/a.h": "#include <hfta/plan/b.h>\n"}),
            ['hfta/data/a.h:1: data includes "hfta/plan/b.h", but plan is not to its left'],
        )

    def test_slow_headers_are_told(self):
        self.assertEqual(
            layer_faults({"hfta/ops/a.cpp": "#include <torch/torch.h>\n"}),
            ["hfta/ops/a.cpp:1: <torch/torch.h> costs 14 s of parsing; include ATen/ops/<op>.h or torch/nn/module.h"],
        )

    def test_umbrella_header_is_for_users(self):
        self.assertEqual(layer_faults({"hfta/ops/a.cpp": '#include "hfta/hfta.h"\n'}), ["hfta/ops/a.cpp:1: hfta/hfta.h is for users only"])

    def test_unknown_folder_is_told(self):
        self.assertIn('the folder "utils" is no layer', layer_faults({"hfta/utils/a.cpp": ""})[0])


class SizesTest(unittest.TestCase):
    def test_long_files_are_told(self):
        self.assertEqual(
            size_faults({"hfta/ops/a.h": "\n" * 151, "hfta/ops/b.h": "\n" * 150, "hfta/ops/a.cpp": "\n" * 401}),
            ["hfta/ops/a.cpp: 401 lines, the limit is about 400", "hfta/ops/a.h: 151 lines, the limit is about 150"],
        )

    def test_long_functions_are_told(self):
        body = "  f();\n"
        text = "namespace a {\nvoid short_one() {\n" + body * 48 + "}\nvoid long_one() {\n" + body * 49 + "}\n}  // namespace a\n"
        self.assertEqual(size_faults({"hfta/ops/a.cpp": text}), ["hfta/ops/a.cpp:52: a function of 51 lines, the limit is about 50"])
        python = "def f():\n" + "    pass\n" * 50
        self.assertEqual(size_faults({"tools/a.py": python}), ["tools/a.py:1: a function of 51 lines, the limit is about 50"])


class DevTest(unittest.TestCase):
    def dev(self, *arguments):
        return subprocess.run([ROOT / "dev", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)

    def test_help_tells_every_command(self):
        text = self.dev("help").stdout
        for command in ("setup", "build", "test", "run", "bench", "wheel", "format", "lint", "help"):
            self.assertRegex(text, rf"(?m)^  {command} ")

    def test_unknown_command_lists_the_known_ones(self):
        done = self.dev("tset")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, 'dev: unknown command "tset"; known: setup, build, test, run, bench, wheel, format, lint, help\n')


if __name__ == "__main__":
    unittest.main()
