#include "hfta/data/loader.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/data/files.h"
#include "tests/support.h"

namespace loader_test {

using namespace hfta::data;
using hfta::test::refusal;
using std::chrono::steady_clock;

Dataset numbered(std::int64_t items) {
  const auto number = torch::arange(items, torch::kLong);
  return {number.to(torch::kFloat).unsqueeze(1), number % 3, 3, {}};
}

// The numbers of the items that an epoch gives, in order.
std::vector<std::int64_t> items_of_epoch(Loader& loader) {
  std::vector<std::int64_t> items;
  for (auto& batch : loader)
    for (std::int64_t i = 0; i < batch.data.size(0); ++i) items.push_back(batch.data[i].item().toLong());
  return items;
}

class LoaderTest : public ::testing::TestWithParam<std::int64_t> {
 protected:
  std::int64_t prefetch() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Prefetch, LoaderTest, ::testing::Values(0, 1, 3));

TEST_P(LoaderTest, EpochGivesEveryItemOnceWithItsTarget) {
  Loader loader(numbered(23), {.batch_size = 5, .seed = 1, .prefetch = prefetch()});
  EXPECT_EQ(loader.batches(), 5);
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int> seen(23);
    std::int64_t index = 0;
    for (auto& batch : loader) {
      EXPECT_EQ(batch.index, index++);
      EXPECT_EQ(batch.data.size(0), index == 5 ? 3 : 5);
      EXPECT_TRUE(torch::equal(batch.data.flatten().to(torch::kLong) % 3, batch.target));
      for (std::int64_t i = 0; i < batch.data.size(0); ++i) ++seen[batch.data[i].item().toLong()];
    }
    EXPECT_EQ(seen, std::vector<int>(23, 1));
  }
}

TEST_P(LoaderTest, OrderDependsOnSeedAndEpochOnly) {
  Loader first(numbered(40), {.batch_size = 7, .seed = 5, .prefetch = prefetch()}),
      other(numbered(40), {.batch_size = 11, .seed = 5, .prefetch = prefetch()});
  torch::manual_seed(1);
  const auto epoch0 = items_of_epoch(first), epoch1 = items_of_epoch(first);
  torch::manual_seed(2);
  EXPECT_EQ(items_of_epoch(other), epoch0) << "neither the batch size nor the default generator matters";
  EXPECT_EQ(items_of_epoch(other), epoch1);
  EXPECT_NE(epoch0, epoch1);
  Loader next_seed(numbered(40), {.batch_size = 7, .seed = 6, .prefetch = prefetch()});
  const auto next_epoch0 = items_of_epoch(next_seed);
  EXPECT_NE(next_epoch0, epoch0);
  EXPECT_NE(next_epoch0, epoch1) << "neighbouring seeds share no order";
}

TEST_P(LoaderTest, DefaultGeneratorIsNotTouched) {
  torch::manual_seed(3);
  const auto expected = torch::rand({4});
  torch::manual_seed(3);
  Loader loader(numbered(20), {.prefetch = prefetch()});
  items_of_epoch(loader);
  EXPECT_TRUE(torch::equal(torch::rand({4}), expected));
}

TEST_P(LoaderTest, UnshuffledKeepsTheOrder) {
  Loader loader(numbered(4), {.batch_size = 3, .shuffle = false, .prefetch = prefetch()});
  EXPECT_EQ(items_of_epoch(loader), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(items_of_epoch(loader), (std::vector<std::int64_t>{0, 1, 2, 3}));
}

TEST_P(LoaderTest, DropLastLeavesOutWhatIsNotFull) {
  Loader loader(numbered(23), {.batch_size = 5, .drop_last = true, .prefetch = prefetch()});
  EXPECT_EQ(loader.batches(), 4);
  EXPECT_EQ(items_of_epoch(loader).size(), 20u);
}

TEST_P(LoaderTest, RestoredPositionGoesOnInsideTheEpoch) {
  const LoaderOptions options{.batch_size = 4, .seed = 9, .prefetch = prefetch()};
  Loader whole(numbered(22), options);
  items_of_epoch(whole);
  const auto epoch1 = items_of_epoch(whole), epoch2 = items_of_epoch(whole);

  Loader stopped(numbered(22), options);
  items_of_epoch(stopped);
  stopped.begin_epoch();
  for (int i = 0; i < 3; ++i) stopped.next();
  const auto position = stopped.position();
  EXPECT_EQ(position, (Position{1, 3}));

  Loader resumed(numbered(22), options);
  resumed.restore(position);
  EXPECT_EQ(resumed.position(), position);
  EXPECT_EQ(items_of_epoch(resumed), std::vector<std::int64_t>(epoch1.begin() + 12, epoch1.end()));
  EXPECT_EQ(items_of_epoch(resumed), epoch2);
}

TEST_P(LoaderTest, PositionAfterTheLastBatchIsTheNextEpoch) {
  Loader loader(numbered(6), {.batch_size = 3, .prefetch = prefetch()});
  loader.begin_epoch();
  loader.next();
  EXPECT_EQ(loader.position(), (Position{0, 1}));
  loader.next();
  EXPECT_EQ(loader.position(), (Position{1, 0}));
  loader.restore(loader.position());
  EXPECT_EQ(items_of_epoch(loader).size(), 6u);
  EXPECT_EQ(loader.position(), (Position{2, 0}));
}

TEST_P(LoaderTest, LanesCanHaveOrdersOfTheirOwn) {
  Loader loader(numbered(10), {.batch_size = 4, .prefetch = prefetch(), .lane_seeds = {3, 8}});
  std::vector<torch::Tensor> parts;
  for (auto& batch : loader) {
    EXPECT_TRUE(batch.per_lane);
    EXPECT_TRUE(torch::equal(batch.data.flatten(1).to(torch::kLong) % 3, batch.target));
    parts.push_back(batch.data.squeeze(2).to(torch::kLong));
  }
  const auto orders = torch::cat(parts, 1);
  EXPECT_TRUE(torch::equal(orders[0], epoch_order(10, 3, 0))) << "a lane's order depends on its seed alone";
  EXPECT_TRUE(torch::equal(orders[1], epoch_order(10, 8, 0)));
}

TEST_P(LoaderTest, SourceIsReadOnceForEachItem) {
  std::vector<std::atomic<int>> reads(17);
  Source source{17, [&](std::int64_t i) {
                  ++reads[i];
                  return Source::Item{torch::full({2}, static_cast<float>(i)), torch::tensor(i)};
                }};
  Loader loader(source, {.batch_size = 5, .prefetch = prefetch()});
  std::int64_t items = 0;
  for (auto& batch : loader) {
    items += batch.data.size(0);
    EXPECT_TRUE(torch::equal(batch.data.select(1, 0).to(torch::kLong), batch.target));
  }
  EXPECT_EQ(items, 17);
  for (const auto& count : reads) EXPECT_EQ(count, 1);
}

// Case C8.
TEST_P(LoaderTest, LeavingAnEpochEarlyNeverHangs) {
  Loader loader(numbered(60), {.batch_size = 4, .prefetch = prefetch()});
  for (std::int64_t repeat = 0; repeat < 200; ++repeat) {
    const auto start = steady_clock::now();
    int batches = 0;
    for (auto& batch : loader) {
      EXPECT_EQ(batch.index, batches);
      if (++batches == 3) break;
    }
    EXPECT_EQ(batches, 3) << "a new epoch starts at its first batch";
    EXPECT_EQ(loader.position().epoch, repeat);
    EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(5));
  }
  for (int repeat = 0; repeat < 200; ++repeat) {
    Loader left(numbered(60), {.batch_size = 4, .prefetch = prefetch()});
    left.begin_epoch();
    left.next();
  }
}

// Case C8.
TEST_P(LoaderTest, ReaderErrorNamesTheItem) {
  for (int repeat = 0; repeat < 200; ++repeat) {
    Loader loader(Source{40,
                         [](std::int64_t i) -> Source::Item {
                           if (i == 17) throw std::runtime_error("bad JPEG");
                           return {torch::zeros({1}), torch::tensor(i)};
                         }},
                  {.batch_size = 5, .shuffle = false, .prefetch = prefetch()});
    const auto start = steady_clock::now();
    int batches = 0;
    try {
      for ([[maybe_unused]] auto& batch : loader) ++batches;
      FAIL() << "nothing thrown";
    } catch (const hfta::Error& e) {
      EXPECT_STREQ(e.what(), "data::Loader: expected to read item 17, got: bad JPEG");
    }
    EXPECT_EQ(batches, 3) << "the batches before the error are given";
    EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(5));
  }
}

TEST_P(LoaderTest, ItemsOfOtherShapesAreRefused) {
  Loader loader(Source{4,
                       [](std::int64_t i) {
                         return Source::Item{torch::zeros({i == 2 ? 3 : 2}), torch::tensor(i)};
                       }},
                {.shuffle = false, .prefetch = prefetch()});
  EXPECT_EQ(refusal([&] { items_of_epoch(loader); }), "data::Loader: expected items of one shape, got [3] and target [] as item 2");
}

TEST(LoaderPrefetchTest, ReadsAheadAndNoFurther) {
  std::atomic<std::int64_t> reads{0};
  Loader loader(Source{100,
                       [&](std::int64_t i) {
                         ++reads;
                         return Source::Item{torch::zeros({1}), torch::tensor(i)};
                       }},
                {.batch_size = 1, .prefetch = 4});
  loader.begin_epoch();
  const auto deadline = steady_clock::now() + std::chrono::minutes(1);
  while (reads < 4 && steady_clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(reads, 4) << "as many batches as asked for, though none was taken";
}

TEST(LoaderErrorTest, BadOptionsAreRefused) {
  EXPECT_EQ(refusal([] { Loader(numbered(3), {.batch_size = 0}); }), "data::Loader: expected a batch size of at least 1, got 0");
  EXPECT_EQ(refusal([] { Loader(numbered(3), {.prefetch = -1}); }), "data::Loader: expected to prefetch at least 0 batches, got -1");
  EXPECT_EQ(refusal([] { Loader(numbered(3), {.batch_size = 4, .drop_last = true}); }),
            "data::Loader: expected at least one full batch of 4, got 3 items");
  EXPECT_EQ(refusal([] { Loader(Source{}, {}); }), "data::Loader: expected a source that reads items, got none");
  EXPECT_EQ(refusal([] {
              Loader(Source{0, [](std::int64_t) { return Source::Item{}; }}, {});
            }),
            "data::Loader: expected at least one item, got 0");
  EXPECT_EQ(refusal([] { Loader(Dataset{}, {}); }), "data::Dataset: expected at least one item in the loader's dataset, got none");
  Loader loader(numbered(6), {.batch_size = 3});
  EXPECT_EQ(refusal([&] {
              loader.restore({0, 2});
            }),
            "data::Loader: expected a batch in [0, 2) of an epoch of at least 0, got batch 2 of epoch 0");
}

}  // namespace loader_test
