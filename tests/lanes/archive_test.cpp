#include "hfta/lanes/archive.h"

#include <sys/resource.h>

#include <csignal>
#include <random>

#include "error_of.h"
#include "hfta/base/error.h"
#include "hfta/lanes/pickle.h"
#include "python.h"
#include "tests/support.h"

namespace {

using namespace hfta::test;
using c10::IValue;
using hfta::Error;
using hfta::InvalidArgument;
using hfta::Unsupported;
using hfta::lanes::load_archive;
using hfta::lanes::save_archive;

using Dict = c10::impl::GenericDict;

Dict dict(std::vector<std::pair<IValue, IValue>> entries) {
  Dict result(c10::AnyType::get(), c10::AnyType::get());
  for (auto& [key, value] : entries) result.insert(key, value);
  return result;
}

IValue list(std::vector<IValue> values) {
  c10::impl::GenericList result(c10::AnyType::get());
  for (auto& value : values) result.push_back(value);
  return result;
}

const auto kEverything = [] {
  return dict({{"zebra", 1},
               {"apple", -5'000'000'000},
               {7, 2.5},
               {"nested", dict({{"list", list({1, true, IValue(), "text"})}, {"tuple", c10::ivalue::Tuple::create({0.9, 0.999})}})},
               {"ints", std::vector<std::int64_t>{3, 1, 2}},
               {"inf", std::numeric_limits<double>::infinity()},
               {"text", "déjà vu"},
               {"tensor", torch::arange(6.).reshape({2, 3})},
               {"row", torch::arange(12).reshape({3, 4})[1]},
               {"transposed", torch::arange(6.).reshape({2, 3}).t()},
               {"scalar", torch::tensor(4.5, torch::kDouble)},
               {"empty", torch::empty({0, 3})},
               {"bf16", torch::tensor({1.5f, -2.f}).to(torch::kBFloat16)},
               {"bool", torch::tensor({true, false})},
               {"complex", torch::complex(torch::tensor({1.f}), torch::tensor({2.f})).conj()},
               {"u16", torch::tensor({1, 65535}).to(torch::kUInt16)},
               {"f8", torch::tensor({1.5f, -2.f}).to(torch::kFloat8_e4m3fn)}});
};

TEST(ArchiveTest, GivesBackWhatWasSaved) {
  const Folder folder;
  const auto expected = kEverything();
  save_archive(folder / "all.pt", expected);
  const auto got = load_archive(folder / "all.pt").toGenericDict();
  ASSERT_EQ(got.size(), expected.size());
  for (auto entry = got.begin(); const auto& want : expected) {
    EXPECT_EQ(entry->key(), want.key()) << "the order is kept";
    const IValue value = entry->value(), wanted = want.value();
    ++entry;
    if (!wanted.isTensor()) continue;
    EXPECT_EQ(value.toTensor().scalar_type(), wanted.toTensor().scalar_type());
    const auto as_numbers = [](const torch::Tensor& tensor) { return torch::view_as_real_copy(tensor.to(torch::kComplexDouble)); };
    EXPECT_TRUE(same_bits(as_numbers(value.toTensor()), as_numbers(wanted.toTensor()))) << want.key();
  }
}

TEST(ArchiveTest, AViewIsSavedAloneAndATiedTensorOnce) {
  const Folder folder;
  const auto big = torch::randn({1000, 64});
  save_archive(folder / "row.pt", dict({{"row", big[3]}}));
  EXPECT_LT(std::filesystem::file_size(folder / "row.pt"), 4000u);
  save_archive(folder / "tied.pt", dict({{"a", big}, {"b", big}, {"c", big.detach()}}));
  EXPECT_LT(std::filesystem::file_size(folder / "tied.pt"), 1000u * 64 * 4 + 8000);
  const auto tied = load_archive(folder / "tied.pt").toGenericDict();
  EXPECT_TRUE(tied.at("a").toTensor().is_alias_of(tied.at("b").toTensor()));
}

TEST(ArchiveTest, PythonLoadsItWithWeightsOnly) {
  if (python().empty()) GTEST_SKIP() << "no Python with torch";
  const Folder folder;
  save_archive(folder / "all.pt", kEverything());
  EXPECT_TRUE(runs_python(folder, R"(
import torch
d = torch.load('all.pt', weights_only=True)
assert list(d)[:4] == ['zebra', 'apple', 7, 'nested'], list(d)
assert d['zebra'] == 1 and d['apple'] == -5_000_000_000 and d[7] == 2.5 and d['inf'] == float('inf') and d['text'] == 'déjà vu'
assert d['nested'] == {'list': [1, True, None, 'text'], 'tuple': (0.9, 0.999)} and d['ints'] == [3, 1, 2]
assert d['nested']['list'][1] is True
assert torch.equal(d['tensor'], torch.arange(6.).reshape(2, 3)) and torch.equal(d['row'], torch.tensor([4, 5, 6, 7]))
assert torch.equal(d['transposed'], torch.arange(6.).reshape(2, 3).t()) and d['transposed'].stride() == (1, 3)
assert d['scalar'].item() == 4.5 and d['scalar'].dtype == torch.float64 and d['empty'].shape == (0, 3)
assert d['bf16'].tolist() == [1.5, -2] and d['bf16'].dtype == torch.bfloat16 and d['bool'].tolist() == [True, False]
assert d['complex'].tolist() == [1 - 2j] and d['u16'].tolist() == [1, 65535] and d['f8'].float().tolist() == [1.5, -2]
)"));
}

TEST(ArchiveTest, ReadsWhatPythonSaved) {
  if (python().empty()) GTEST_SKIP() << "no Python with torch";
  const Folder folder;
  ASSERT_TRUE(runs_python(folder, R"(
import torch
from collections import OrderedDict
base = torch.arange(12.).reshape(3, 4)
torch.save(OrderedDict(p=torch.nn.Parameter(base.clone()), view=base[1], t=base.t(), n=None, b=True, i=2**40, neg=-3, f=1e-300, s='ä', l=[1, [2.5]], size=base.shape,
                       h=torch.ones(3).half(), u=torch.tensor([40000]).to(torch.uint16), same=base, many={i: i for i in range(300)}), 'p.pt')
)"));
  const auto got = load_archive(folder / "p.pt").toGenericDict();
  const auto base = torch::arange(12.).reshape({3, 4});
  EXPECT_TRUE(same_bits(got.at("p").toTensor(), base));
  EXPECT_TRUE(same_bits(got.at("view").toTensor(), base[1]));
  EXPECT_TRUE(same_bits(got.at("t").toTensor(), base.t()));
  EXPECT_TRUE(got.at("same").toTensor().is_alias_of(got.at("view").toTensor()));
  EXPECT_TRUE(got.at("n").isNone());
  EXPECT_EQ(got.at("b"), IValue(true));
  EXPECT_EQ(got.at("i"), IValue(std::int64_t{1} << 40));
  EXPECT_EQ(got.at("neg"), IValue(-3));
  EXPECT_EQ(got.at("f"), IValue(1e-300));
  EXPECT_EQ(got.at("s"), IValue("ä"));
  EXPECT_EQ(got.at("l").toListRef()[1].toListRef()[0], IValue(2.5));
  EXPECT_EQ(got.at("size").toTupleRef().elements()[1], IValue(4));
  EXPECT_EQ(got.at("h").toTensor().scalar_type(), torch::kHalf);
  EXPECT_EQ(got.at("u").toTensor().scalar_type(), torch::kUInt16);
  EXPECT_EQ(got.at("many").toGenericDict().at(299), IValue(299));
  EXPECT_EQ(got.begin()->key(), IValue("p"));
}

TEST(ArchiveTest, RefusesWhatIsNotPlainData) {
  if (python().empty()) GTEST_SKIP() << "no Python with torch";
  const Folder folder;
  ASSERT_TRUE(runs_python(folder, R"(
import os, torch
class Evil:
    def __reduce__(self): return (os.system, ('touch evil',))
torch.save({'a': Evil()}, 'evil.pt')
torch.save({'a': torch.nn.Linear(2, 2)}, 'module.pt')
torch.save({'a': {1, 2}}, 'set.pt')
torch.save({'a': torch.ones(2)}, 'old.pt', _use_new_zipfile_serialization=False)
)"));
  EXPECT_EQ(error_of<InvalidArgument>([&] { load_archive(folder / "evil.pt"); }), "lanes::load_archive: expected plain data, got posix.system in \"" + (folder / "evil.pt") + "\"");
  EXPECT_EQ(error_of<InvalidArgument>([&] { load_archive(folder / "module.pt"); }),
            "lanes::load_archive: expected plain data, got torch.nn.modules.linear.Linear in \"" + (folder / "module.pt") + "\"");
  EXPECT_EQ(error_of<InvalidArgument>([&] { load_archive(folder / "set.pt"); }), "lanes::load_archive: expected plain data, got builtins.set in \"" + (folder / "set.pt") + "\"");
  EXPECT_EQ(error_of<InvalidArgument>([&] { load_archive(folder / "old.pt"); }),
            "lanes::load_archive: expected an archive of torch.save, got a damaged, truncated or other file \"" + (folder / "old.pt") + "\"");
  EXPECT_FALSE(std::filesystem::exists(folder / "evil"));
}

TEST(ArchiveTest, ATruncatedFileIsRefusedWhereverItEnds) {
  const Folder folder;
  save_archive(folder / "whole.pt", kEverything());
  std::ostringstream whole;
  whole << std::ifstream(folder / "whole.pt").rdbuf();
  const auto bytes = whole.str();
  for (std::size_t size = 0; size < bytes.size(); size += 97) {
    std::ofstream(folder / "cut.pt") << bytes.substr(0, size);
    EXPECT_EQ(error_of<InvalidArgument>([&] { load_archive(folder / "cut.pt"); }),
              "lanes::load_archive: expected an archive of torch.save, got a damaged, truncated or other file \"" + (folder / "cut.pt") + "\"")
        << size;
  }
}

TEST(ArchiveTest, DamagedBytesAreRefusedOrReadButNeverTrusted) {
  const auto whole = hfta::lanes::pickle(kEverything());
  const auto read_record = [&](const std::string& key) {
    const auto index = std::strtoul(key.c_str(), nullptr, 10);
    return whole.records.at(index % whole.records.size()).storage();
  };
  std::mt19937 random(5);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    auto bytes = whole.bytes;
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    try {
      const auto value = hfta::lanes::unpickle(bytes, read_record);
      if (!value.isGenericDict()) continue;
      for (const auto& entry : value.toGenericDict())
        if (entry.value().isTensor() && entry.value().toTensor().numel() < 100) entry.value().toTensor().clone();
    } catch (const InvalidArgument&) {
      ++refused;
    } catch (const c10::Error&) {  // load_archive tells this as a damaged file
      ++refused;
    }
  }
  EXPECT_GT(refused, 4000) << "a quarter of them are cut";
}

TEST(ArchiveTest, ErrorsOfTheSystemAreOneLineAndLeaveTheOldFile) {
  const Folder folder;
  EXPECT_EQ(error_of<Error>([&] { load_archive(folder / "none.pt"); }), "lanes::load_archive: expected to read \"" + (folder / "none.pt") + "\", got No such file or directory");
  EXPECT_EQ(error_of<Error>([&] { load_archive(folder.path().string()); }), "lanes::load_archive: expected to read \"" + folder.path().string() + "\", got something that is not a file");
  EXPECT_EQ(error_of<Error>([&] { save_archive(folder / "no/such.pt", 1); }), "lanes::save_archive: expected to write \"" + (folder / "no/such.pt") + "\", got No such file or directory");
  save_archive(folder / "kept.pt", 42);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{10000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const auto error = error_of<Error>([&] { save_archive(folder / "kept.pt", torch::zeros({100, 100})); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(error, "lanes::save_archive: expected to write \"" + (folder / "kept.pt") + "\", got File too large");
  EXPECT_EQ(load_archive(folder / "kept.pt"), IValue(42));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "nothing half written stays";
}

TEST(ArchiveTest, RefusesToSaveWhatPlainDataCannotHold) {
  const Folder folder;
  EXPECT_EQ(error_of<Unsupported>([&] { save_archive(folder / "x.pt", c10::Device(c10::kCPU)); }),
            "lanes::save_archive: expected dicts, lists, tuples, strings, numbers and tensors, got Device");
  EXPECT_EQ(error_of<Unsupported>([&] { save_archive(folder / "x.pt", torch::eye(2).to_sparse()); }),
            "lanes::save_archive: expected dense tensors of common types, got SparseCPUFloatType");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.pt"));
}

}  // namespace
