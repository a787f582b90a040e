"""What the benchmark of arrays computes from its measurements, and how its files of results merge."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "arrays"))
sys.dont_write_bytecode = True

import bench  # noqa: E402
import checks  # noqa: E402
import costs  # noqa: E402
import driver  # noqa: E402
import machine  # noqa: E402
import report  # noqa: E402
import results  # noqa: E402
from workloads import ROWS, Workload  # noqa: E402


def way(ms, lanes=64, note="1 thread", **more):
    return {"ms": ms, "lanes": lanes, "note": note, "peak_bytes": 100 << 20, "weights_off": 0.001, "steps": 1} | more


def result(row="mlp-2-16 b32 x64", ours=1.0, loop=50.0, least=0.1, **more):
    ways = {"hfta": way([ours] * 9, note={"plan": "8 lanes"}), "loop": way([loop] * 9)}
    return {"row": row, "optimizer": "adam", "ways": ways, "failed": {}, "roofline": {"ms": least, "limit": "stream"}} | more


class RatiosTest(unittest.TestCase):
    def test_ratios_are_taken_repeat_by_repeat(self):
        slow = {"ways": {"hfta": way([1, 2, 4]), "loop": way([10, 20, 40])}}
        self.assertEqual(report.ratios(slow, "loop"), [10, 10, 10])

    def test_lower_quartile_judges(self):
        self.assertEqual(report.lower_quartile([1, 2, 3, 4, 5, 6, 7]), 2)

    def test_verdict_tells_goal_ok_and_missed(self):
        self.assertEqual(report.verdict(result(loop=90), "loop"), "90.00 goal")
        self.assertEqual(report.verdict(result(loop=50), "loop"), "50.00 ok")
        self.assertEqual(report.verdict(result(loop=30), "loop"), "30.00 MISSED 40.00")

    def test_target_beyond_the_roofline_is_replaced_by_85_percent_of_it(self):
        self.assertEqual(report.verdict(result(loop=30, least=0.9), "loop"), "30.00 goal (for 40: beyond the roofline)")
        self.assertEqual(report.verdict(result(loop=20, least=0.9, ours=1.2), "loop"), "16.67 MISSED 18.89 (for 40: beyond the roofline)")

    def test_column_without_a_target_must_not_be_faster(self):
        with_libtorch = result()
        with_libtorch["ways"]["libtorch"] = way([0.9] * 9)
        self.assertEqual(report.verdict(with_libtorch, "libtorch"), "0.90 SLOWER")

    def test_every_row_has_targets(self):
        for row in ROWS:
            self.assertIsNotNone(report.target(row.name, "loop"), row.name)


class RooflineTest(unittest.TestCase):
    row = Workload("mlp-784-128", 32, 32)

    def test_arithmetic_binds_where_the_stream_is_fast(self):
        roof = report.roofline(self.row, "adam", {"peak_gflops": 100}, stream_gbytes=1e6)
        self.assertEqual(roof["limit"], "arithmetic")
        self.assertAlmostEqual(roof["products_ms"], self.row.flops() / 100e9 * 1e3)
        self.assertAlmostEqual(roof["ms"], (self.row.flops() + 2 * 9 * self.row.parameters()) / 100e9 * 1e3)

    def test_a_matrix_unit_makes_products_beside_the_update(self):
        roof = report.roofline(self.row, "adam", {"peak_gflops": 100, "matrix_unit": True}, stream_gbytes=1e6)
        self.assertAlmostEqual(roof["products_ms"], self.row.flops() / (100e9 * 16 / 6) * 1e3)
        self.assertAlmostEqual(roof["ms"], max(roof["products_ms"], roof["update_ms"]))

    def test_weights_and_moments_are_read_and_written_once(self):
        roof = report.roofline(self.row, "adam", {"peak_gflops": 100}, stream_gbytes=1)
        self.assertEqual(roof["limit"], "stream")
        self.assertEqual(roof["moved_bytes"], 2 * 3 * 4 * self.row.parameters())
        self.assertEqual(report.roofline(self.row, "sgd", {"peak_gflops": 100}, 1)["moved_bytes"], 2 * 2 * 4 * self.row.parameters())

    def test_steps_together_stream_once(self):
        one, eight = (report.roofline(self.row, "adam", {"peak_gflops": 100}, 1, together) for together in (1, 8))
        self.assertAlmostEqual(one["stream_ms"], 8 * eight["stream_ms"])

    def test_flops_of_a_linear_model_are_those_of_its_products(self):
        # Forward, weight gradients, and input gradients of all layers but the first.
        one, two, three = 784 * 128, 128 * 128, 128 * 10
        self.assertEqual(Workload("mlp-784-128", 32, 2).flops(), 2 * 2 * 32 * (2 * one + 3 * two + 3 * three))


class FilesTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name) / "rows.json"
        self.addCleanup(self.folder.cleanup)
        quiet = contextlib.redirect_stdout(io.StringIO())
        quiet.__enter__()
        self.addCleanup(quiet.__exit__, None, None, None)

    def test_rows_run_again_replace_themselves_only(self):
        for row in ({"row": "a", "x": 1}, {"row": "b", "x": 1}, {"row": "c", "x": 2}, {"row": "a", "x": 2}):
            rows = results.record(self.path, row, ["a", "b", "c"])
        self.assertEqual(rows, [{"row": "a", "x": 2}, {"row": "b", "x": 1}, {"row": "c", "x": 2}])
        self.assertEqual(results.read(self.path), rows)

    def test_each_row_has_its_own_date_machine_and_commit(self):
        row = results.stamped({"row": "a"}, {"cores": 2}, ROOT)
        self.assertEqual(row["machine"], {"cores": 2})
        self.assertRegex(row["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")
        self.assertEqual(results.commit(pathlib.Path(self.folder.name)), "")

    def run_bench(self, *arguments):
        """Costs of two rows, of which the second was disturbed."""
        told = "other processes took 0.50 cores"
        rows = [{"row": "gru b32 x8", "disturbed": None}, {"row": "resnet18 b32 x4", "disturbed": told}]
        kind = (lambda options, facts: iter(rows), "costs", lambda rows: "", lambda rows, path: None, [])
        asked = bench.parse(["--binary", "arrays_way", "--costs", "--out", str(self.path), *arguments])
        with mock.patch.object(bench, "parse", return_value=asked), mock.patch.dict(bench.KINDS, costs=kind):
            with mock.patch.object(driver, "wait_until_quiet"), mock.patch.object(bench, "machine_facts", return_value={"processor": "AMD EPYC"}):
                bench.main()

    def test_disturbed_rows_are_refused_and_the_others_kept(self):
        with self.assertRaisesRegex(SystemExit, "^bench: not recorded: disturbed while running resnet18 b32 x4; --force records"):
            self.run_bench()
        self.assertEqual([row["row"] for row in results.read(self.path)], ["gru b32 x8"])
        self.run_bench("--force")
        self.assertEqual(results.read(self.path)[1]["disturbed"], "other processes took 0.50 cores")

    def test_file_of_another_format_is_written_anew(self):
        self.path.write_text(json.dumps({"format": 1, "rows": [{"row": "old"}]}))
        self.assertEqual(results.read(self.path), [])
        self.assertEqual(results.record(self.path, {"row": "a"}, []), [{"row": "a"}])

    def test_recorded_files_can_be_read(self):
        for path in (ROOT / "benchmarks" / "results").glob("*/*.json"):
            self.assertEqual(json.loads(path.read_text())["format"], results.FORMAT, path)


class DisturbanceTest(unittest.TestCase):
    def test_others_and_spread_disturb(self):
        self.assertIsNone(driver.disturbed({"others_cores": 0.05, "control_spread": 0.1}))
        self.assertEqual(driver.disturbed({"others_cores": 0.5, "control_spread": 0}), "other processes took 0.50 cores")
        self.assertEqual(driver.disturbed({"others_cores": 0, "control_spread": 0.2}), "the control product spread by 20%")

    def test_spread_is_the_quartiles_distance_over_the_median(self):
        self.assertAlmostEqual(machine.spread([1, 2, 3, 4, 5, 6, 7]), (6 - 2) / 4)

    def test_processes_that_have_ended_are_ours(self):
        others = machine.Others()
        subprocess.run([sys.executable, "-c", "import time; t = time.time()\nwhile time.time() < t + 0.5: pass"], check=True)
        self.assertGreater(machine.tree_seconds(os.getpid()) - others.ours, 0.2)

    def test_busy_machine_is_refused_before_anything_runs(self):
        with mock.patch.object(machine.Others, "cores", return_value=0.7), mock.patch("time.sleep"):
            with self.assertRaisesRegex(SystemExit, r"^bench: other processes take 0.70 cores \(at most 0.1 allowed\)"):
                driver.wait_until_quiet(force=False)
            driver.wait_until_quiet(force=True)

    def test_disturbed_row_is_tried_again_twice(self):
        loud = {"others_cores": 0.5, "control_spread": 0}
        options = mock.Mock(force=False)
        with mock.patch.object(driver, "run_row", side_effect=[dict(loud), dict(loud), {"others_cores": 0, "control_spread": 0}]) as run:
            with mock.patch("time.sleep"), contextlib.redirect_stderr(io.StringIO()):
                self.assertIsNone(driver.run_undisturbed(ROWS[0], [], options)["disturbed"])
        self.assertEqual(run.call_count, 3)


class OptionsTest(unittest.TestCase):
    def parse(self, *arguments):
        errors = io.StringIO()
        try:
            with contextlib.redirect_stderr(errors):
                return bench.parse(["--binary", "arrays_way", *arguments])
        except SystemExit:
            return errors.getvalue().splitlines()[-1]

    def test_wrong_ones_are_told(self):
        self.assertIn("--repeats: expected at least 9, got 3", self.parse("--repeats", "3"))
        self.assertIn("--rows: no row begins with 'vgg'; there are mlp-2-16 b32 x64", self.parse("--rows", "vgg"))

    def test_device_that_is_not_there_is_refused(self):
        with mock.patch("torch.cuda.is_available", return_value=False):
            self.assertIn("--device: expected a device that this torch has, got cuda", self.parse("--device", "cuda"))

    def test_each_device_and_processor_has_a_file_of_its_own(self):
        with mock.patch("torch.cuda.is_available", return_value=True):
            asked = self.parse("--device", "cuda:1", "--optimizer", "sgd")
        self.assertEqual(bench.file_of("table", asked, "NVIDIA H200"), bench.FOLDER / "nvidia-h200" / "arrays_sgd_cuda1.json")
        processor = "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"
        self.assertEqual(bench.file_of("scaling", self.parse(), processor), bench.FOLDER / "intel-xeon-platinum-8481c-cpu-2-70ghz" / "scaling_adam.json")
        self.assertEqual(results.folder_of("(TM) ?"), "unnamed")

    def test_ways_are_asked_for_the_device_and_bf16(self):
        with mock.patch("torch.cuda.is_available", return_value=True):
            specs = driver.requests(ROWS[0], self.parse("--device", "cuda", "--bf16", "--jax-python", "other"))
        by_name = {spec.name: spec for spec in specs}
        self.assertEqual({spec.request["device"] for spec in specs}, {"cuda"})
        self.assertTrue(by_name["hfta bf16"].request["bf16"] and by_name["loop bf16"].request["bf16"])
        self.assertEqual(by_name["jax"].command[0], "other")
        self.assertEqual([spec.name for spec in driver.requests(ROWS[0], self.parse("--ways", "jax"))], ["loop", "jax", "hfta"])


class TablesTest(unittest.TestCase):
    def test_table_marks_what_was_missed(self):
        lines = report.table([result(loop=30)]).splitlines()
        self.assertTrue(lines[2].startswith("| mlp-2-16 b32 x64 | 1 | **30** | - | - |"), lines[2])
        self.assertTrue(lines[2].endswith("| 0.1 (stream) | 10% | - | - |"), lines[2])
        both = result()
        both["ways"]["hfta x8"], both["roofline_together"] = way([0.5] * 9), {"ms": 0.05}
        self.assertTrue(report.table([both]).endswith("| 0.1 (stream) | 10% | 0.5 | 10% |"))

    def test_scaling_tells_the_last_over_the_least(self):
        ways = {"libtorch": way([2.0] * 9, 1), "hfta x1": way([1.0] * 9, 1), "hfta x2": way([1.0] * 9, 2), "hfta x4": way([4.0] * 9, 4)}
        table = report.scaling_table([{"row": "gru b32", "optimizer": "adam", "ways": ways}])
        self.assertEqual(table.splitlines()[2], "| gru b32 | 1 (100) | 0.5 (100) | 1 (100) | 2.00 (libtorch) | **2.00** |")
        lines = report.scaling_lines({"row": "gru b32", "optimizer": "adam", "ways": ways, "failed": {}}).splitlines()
        self.assertEqual(lines[0], "gru b32 adam: time a lane at 4 lanes is 2.00 of the least MISSED 1.25")
        self.assertEqual(lines[1], "  one lane is 2.00 times as fast as the plain model in libtorch   [1 thread]")

    def test_the_last_over_the_least_is_judged_by_the_roofline_where_that_binds(self):
        ways = {"libtorch": way([2.0] * 9, 1), "hfta x1": way([1.0] * 9, 1), "hfta x4": way([8.0] * 9, 4)}
        given = {"row": "gru b32", "optimizer": "adam", "ways": ways, "failed": {}, "roofline": {"ms": 6.8}}
        self.assertEqual(report.scaling_lines(given).splitlines()[0], "gru b32 adam: time a lane at 4 lanes is 2.00 of the least (for 1.25: beyond the roofline)")
        self.assertTrue(report.scaling_table([given]).endswith("| 2.00 of 2.00 in reach |"))
        given["roofline"]["ms"] = 5.1
        self.assertTrue(report.scaling_table([given]).endswith("| **2.00 of 1.50 in reach** |"))
        given["roofline"]["ms"] = 1
        self.assertTrue(report.scaling_table([given]).endswith("| **2.00** |"))

    def test_one_lane_is_judged_by_the_faster_plain_model(self):
        ways = {"loop": way([0.9] * 9, 1), "libtorch": way([2.0] * 9, 1), "hfta x1": way([1.0] * 9, 1)}
        given = {"row": "gru b32", "optimizer": "adam", "ways": ways, "failed": {}}
        self.assertTrue(report.scaling_table([given]).endswith("| **0.90 (loop)** | 1.00 |"))
        self.assertIn("one lane is 0.90 times as fast as the plain model in loop MISSED 0.95", report.scaling_lines(given))

    def test_table_tells_targets_that_the_roofline_replaces(self):
        self.assertIn("| 30 of 37.8 in reach |", report.table([result(loop=30, least=0.675, ours=1.0)]).replace("*", ""))

    def test_costs_tell_shares_and_the_loop(self):
        times = {f"{what}_ms": 10.0 for what in ("startup", "evaluation", "checkpoint_write", "checkpoint_read", "plan_search", "step")}
        ours = times | {"forward_ms": 2.0, "backward_ms": 5.0, "update_ms": 3.0, "dispatch_ms": 1.0, "nodes": 20}
        table = costs.table([{"row": "a", "optimizer": "adam", "hfta": ours, "loop": times}]).splitlines()
        self.assertEqual(table[2], "| a | 10 | 20% | 50% | 30% | 20 | 10% |")
        self.assertEqual(table[6], "| a | 10 (10) | 10 | 10 (10) | 10 (10) | 10 (10) | - | - | - | - |")

    def test_faults_are_more_than_rounding(self):
        row = Workload("mlp-2-16", 32, 64)
        self.assertEqual(checks.faults(row, {"func": 0.005}, {"func": 1e-12}), [])
        self.assertEqual(len(checks.faults(row, {"func": 0.02}, {"func": 1e-3, "jax": "left out"})), 2)


if __name__ == "__main__":
    unittest.main()
