// What breaks a naive recorder, one test each; the numbers in the names are those of the list of known breakages (rows 1 to 11, answers a to m).
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>

#include <gmock/gmock.h>

#include <thread>

#include "hfta/base/error.h"
#include "tests/train/contract_models.h"
#include "tests/train/lanes_against_solo.h"

namespace record_lift_replay_test {

using at::Tensor;
using hfta::Array;
using hfta::test::expect_lanes_equal_solo;
using hfta::test::kLanes;
using hfta::test::Loss;
using hfta::test::Setting;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct PairImpl : nn::Module {
  nn::Linear one{register_module("one", nn::Linear(12, 5))}, two{register_module("two", nn::Linear(5, 5))};
  double p;
  explicit PairImpl(std::int64_t lane = 0) : p(0.1 * static_cast<double>(lane + 1)) {}
};
TORCH_MODULE(Pair);

Pair build(std::int64_t lane) { return Pair(lane); }

/// In each way of lowering its operators, at width 1 and in a group.
void expect_fuses_in_every_lowering(const Loss<Pair>& loss) {
  for (const std::int64_t width : {std::int64_t{1}, std::int64_t{3}}) {
    Setting setting{.width = width, .lowerings = std::map<std::string, std::string>()};
    for (const auto& way : hfta::test::ways_of_lowerings(expect_lanes_equal_solo<Pair>(build, loss, setting), width)) {
      setting.lowerings = way;
      expect_lanes_equal_solo<Pair>(build, loss, setting);
    }
  }
}

/// At width 1 on two workers and as one group of all lanes.
void expect_fuses(const Loss<Pair>& loss, double factor = 1) {
  expect_lanes_equal_solo<Pair>(build, loss, {.width = 1, .workers = 2, .factor = factor});
  expect_lanes_equal_solo<Pair>(build, loss, {.width = kLanes, .factor = factor});
  expect_lanes_equal_solo<Pair>(build, loss, {.width = 2, .workers = 2, .per_lane = true, .factor = factor});
}

/// The refusal of a step, which must leave everything as it was.
std::string refusal(const Loss<Pair>& loss, int calls = 2) {
  Array<Pair> array(kLanes, build);
  std::vector<Tensor> before;
  for (const auto& stack : array.parameters()) before.push_back(stack.tensor.detach().clone());
  hfta::train::RecordedFunction recorded({&array}, hfta::test::loss_and_gradients<Pair>(array, loss), {.width = kLanes});
  std::string text = "nothing refused";
  try {
    for (int call = 0; call < calls; ++call) {
      torch::manual_seed(call);
      const std::vector<hfta::train::Input> inputs{{torch::randn({6, 12})}, {torch::randint(5, {6})}};
      recorded.run(inputs, [](auto, auto, auto) {});
    }
  } catch (const hfta::Unsupported& e) {
    text = e.what();
  }
  for (std::size_t k = 0; k < before.size(); ++k) EXPECT_TRUE(torch::equal(array.parameters()[k].tensor.detach(), before[k]));
  return text;
}

Tensor cross_entropy(const Tensor& logits, const Tensor& y) { return F::cross_entropy(logits, y); }

TEST(RecordLiftReplayTest, Row1MetadataChangedInPlace) {
  expect_fuses([](Pair& net, const Tensor& x, const Tensor& y) {
    auto h = net->one(x).narrow(0, 0, 5) * 1.5;
    h.t_();
    h = net->two(h) * 0.5;
    h.unsqueeze_(0).squeeze_(0).transpose_(0, 1);
    return cross_entropy(torch::sigmoid(h), y.narrow(0, 0, 5));
  });
}

TEST(RecordLiftReplayTest, Row2ForeachOperatorsWithoutResults) {
  expect_fuses([](Pair& net, const Tensor& x, const Tensor& y) {
    auto h = net->one(x) * 2;
    {
      const at::NoGradGuard no_grad;
      std::vector<Tensor> scaled{h.detach()};
      torch::_foreach_mul_(scaled, 0.5);
    }
    return cross_entropy(net->two(h), y);
  });
}

TEST(RecordLiftReplayTest, Row3MutableOperatorWithAFreshResult) {
  expect_fuses([](Pair& net, const Tensor& x, const Tensor& y) { return cross_entropy(net->two(torch::rrelu(net->one(x), 0.1, 0.3, true)), y); });
}

TEST(RecordLiftReplayTest, Row4ConjugateBits) {
  expect_lanes_equal_solo<Pair>(build, [](Pair& net, const Tensor& x, const Tensor& y) {
    const auto z = torch::complex(net->one(x), net->two(net->one(x)));
    return cross_entropy(torch::real(z * z.conj() + z.conj() * 2), y);
  }, {.width = 1});
}

TEST(RecordLiftReplayTest, Row5KernelsThatReadTheGradMode) {
  for (const std::int64_t width : {std::int64_t{1}, kLanes})
    for (const bool training : {true, false})
      expect_lanes_equal_solo<hfta::test::LongShort>([](std::int64_t lane) { return hfta::test::LongShort(static_cast<int>(lane)); },
                                                     [](hfta::test::LongShort& net, const Tensor& x, const Tensor& y) { return cross_entropy(net->forward(x), y); },
                                                     {.width = width, .training = training});
}

TEST(RecordLiftReplayTest, Row6AsStridedAndChannelsLastUnderLift) {
  expect_fuses_in_every_lowering([](Pair& net, const Tensor& x, const Tensor& y) {
    const auto image = net->one(x).view({6, 5, 1, 1}).expand({6, 5, 2, 3}).contiguous(torch::MemoryFormat::ChannelsLast);
    const auto kernel = net->two->weight.view({5, 5, 1, 1});
    const auto convolved = torch::conv2d(image, kernel);
    const auto strided = convolved.as_strided({6, 5}, {convolved.stride(0), convolved.stride(1)});
    return cross_entropy(strided, y);
  });
}

TEST(RecordLiftReplayTest, Row7RandomOperatorsOnSharedInputsDrawPerLane) {
  expect_fuses([](Pair& net, const Tensor& x, const Tensor& y) { return cross_entropy(net->one(torch::dropout(x, 0.3, true)), y); });
}

TEST(RecordLiftReplayTest, Row8AutocastAroundTheReplay) {
  const Loss<Pair> loss = [](Pair& net, const Tensor& x, const Tensor& y) { return cross_entropy(net->two(torch::tanh(net->one(x))), y); };
  Array<Pair> array(kLanes, build);
  hfta::train::RecordedFunction recorded({&array}, hfta::test::loss_and_gradients<Pair>(array, loss), {.width = kLanes});
  const std::vector<hfta::train::Input> inputs{{torch::randn({6, 12})}, {torch::randint(5, {6})}};
  Tensor outside, inside;
  recorded.run(inputs, [&](auto, auto, std::span<const Tensor> r) { outside = r[0].clone(); });
  at::autocast::set_autocast_enabled(at::kCPU, true);
  recorded.run(inputs, [&](auto, auto, std::span<const Tensor> r) { inside = r[0].clone(); });
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_TRUE(hfta::test::same_bits(inside, outside));
}

/// What a checkpoint does: the generator is put back, and the same dropout is computed again.
Tensor with_recompute(const std::function<Tensor()>& compute) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const auto before = hfta::base::state_of(generator);
  const auto first = compute();
  const auto after = hfta::base::state_of(generator);
  hfta::base::set_state_of(generator, before);
  const auto again = compute();
  hfta::base::set_state_of(generator, after);
  return first * (again != 0) + torch::dropout(again, 0.4, true);  // nothing is lost where the masks are equal
}

TEST(RecordLiftReplayTest, Row9RecomputedDropoutHasTheSameMask) {
  expect_fuses([](Pair& net, const Tensor& x, const Tensor& y) {
    return cross_entropy(net->two(with_recompute([&] { return torch::dropout(torch::sigmoid(net->one(x)), 0.4, true); })), y);
  });
}

TEST(RecordLiftReplayTest, Row11ValuesReadOnTheHostAreRefused) {
  EXPECT_THAT(refusal([](Pair& net, const Tensor& x, const Tensor& y) {
                const auto loss = cross_entropy(net->one(x), y);
                return loss / loss.item<float>();
              }),
              ::testing::AllOf(::testing::HasSubstr("aten::_local_scalar_dense"), ::testing::HasSubstr("reads a value on the host")));
}

TEST(RecordLiftReplayTest, AnswerARandomOperatorsEqualSolo) {
  expect_fuses([](Pair& net, const Tensor& x, const Tensor& y) {
    auto h = torch::dropout(net->one(x), 0.2, true) + torch::rand_like(x.narrow(1, 0, 5)) + torch::randn({6, 5});
    h = h + torch::bernoulli(torch::sigmoid(h).detach()) + torch::zeros({6, 5}).scatter(1, torch::multinomial(torch::softmax(h, 1).detach(), 2), 1);
    h = h.index_select(0, torch::randperm(6)) + F::gumbel_softmax(h) + torch::empty({6, 5}).uniform_(-1, 1);
    return cross_entropy(net->two(h), y);
  });
}

TEST(RecordLiftReplayTest, AnswerBTwoThreadsRecordAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([] {
      for (int round = 0; round < 3; ++round)
        expect_lanes_equal_solo<Pair>(build, [](Pair& net, const Tensor& x, const Tensor& y) { return cross_entropy(net->two(torch::dropout(net->one(x), 0.2, true)), y); });
    });
  for (auto& thread : threads) thread.join();
}

TEST(RecordLiftReplayTest, AnswerCAutocastInsideTheStep) {
  expect_fuses(
      [](Pair& net, const Tensor& x, const Tensor& y) {
        at::autocast::set_autocast_enabled(at::kCPU, true);
        at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
        const auto logits = net->two(torch::relu(net->one(x))) + net->two(torch::relu(net->one(x * 0.5)));
        at::autocast::clear_cache();
        at::autocast::set_autocast_enabled(at::kCPU, false);
        return cross_entropy(logits.to(torch::kFloat), y);
      },
      300);
}

struct Cube : torch::autograd::Function<Cube> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return x.pow(3);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context, torch::autograd::tensor_list grads) {
    return {grads[0] * 3 * context->get_saved_variables()[0].pow(2)};
  }
};

TEST(RecordLiftReplayTest, AnswerECustomFunctionHooksAndDoubleBackward) {
  expect_fuses([](Pair& net, const Tensor& x, const Tensor& y) {
    auto h = net->one(x);
    h.register_hook([](const Tensor& g) { return g * 0.5; });
    const auto data = x.detach().clone().requires_grad_();
    const auto penalty = torch::autograd::grad({torch::tanh(net->one(data)).sum()}, {data}, {}, true, true)[0].pow(2).mean();
    return cross_entropy(net->two(Cube::apply(torch::tanh(h))), y) + penalty;
  });
}

struct TiedImpl : nn::Module {
  nn::Linear one{register_module("one", nn::Linear(12, 12))}, head{register_module("head", nn::Linear(12, 5))};
  TiedImpl() {
    register_parameter("tied", one->weight);
    head->bias.requires_grad_(false);
    register_buffer("seen", torch::zeros({}));
  }
  Tensor forward(const Tensor& x) {
    const at::NoGradGuard no_grad;
    named_buffers()["seen"].add_(1);
    return x;
  }
};
TORCH_MODULE(Tied);

TEST(RecordLiftReplayTest, AnswerFTiedAndFrozenParametersAndBuffersInPlace) {
  for (const std::int64_t width : {std::int64_t{1}, kLanes})
    expect_lanes_equal_solo<Tied>([](std::int64_t) { return Tied(); },
                                  [](Tied& net, const Tensor& x, const Tensor& y) { return cross_entropy(net->head(F::linear(torch::relu(net->one(net->forward(x))), net->one->weight)), y); },
                                  {.width = width});
}

struct ReboundImpl : PairImpl {
  Tensor average = register_buffer("average", torch::zeros({5}));
  explicit ReboundImpl(std::int64_t) {}
};
TORCH_MODULE(Rebound);

TEST(RecordLiftReplayTest, AnswerFReboundBufferIsRefused) {
  Array<Rebound> array(kLanes, [](std::int64_t lane) { return Rebound(lane); });
  hfta::train::RecordedFunction recorded({&array}, hfta::test::loss_and_gradients<Rebound>(array, [](Rebound& net, const Tensor& x, const Tensor& y) {
    const auto h = net->one(x);
    net->average.set_data(0.9 * net->average + h.mean(0).detach());
    return cross_entropy(h, y);
  }), {.width = kLanes});
  try {
    recorded.run(std::vector<hfta::train::Input>{{torch::randn({6, 12})}, {torch::randint(5, {6})}}, [](auto, auto, auto) {});
    FAIL() << "nothing refused";
  } catch (const hfta::Unsupported& e) {
    EXPECT_NE(std::string(e.what()).find("\"average\""), std::string::npos) << e.what();
  }
}

struct NormImpl : nn::Module {
  nn::Linear one{register_module("one", nn::Linear(12, 5))};
  nn::BatchNorm1d norm;
  NormImpl(std::int64_t lane, bool cumulative)
      : norm(nn::BatchNorm1dOptions(5).momentum(cumulative ? std::optional<double>() : std::optional<double>(0.1 + 0.1 * static_cast<double>(lane)))) {
    register_module("norm", norm);
  }
};
TORCH_MODULE(Norm);

TEST(RecordLiftReplayTest, AnswerGBatchNormWithItsLanesMomentum) {
  for (const std::int64_t width : {std::int64_t{1}, kLanes})
    expect_lanes_equal_solo<Norm>([](std::int64_t lane) { return Norm(lane, false); },
                                  [](Norm& net, const Tensor& x, const Tensor& y) { return cross_entropy(net->norm(net->one(x)), y); }, {.width = width});
}

TEST(RecordLiftReplayTest, AnswerGCumulativeBatchNormIsRefused) {
  Array<Norm> array(kLanes, [](std::int64_t lane) { return Norm(lane, true); });
  hfta::train::RecordedFunction recorded({&array}, hfta::test::loss_and_gradients<Norm>(array, [](Norm& net, const Tensor& x, const Tensor& y) {
    return cross_entropy(net->norm(net->one(x)), y);
  }), {.width = kLanes});
  EXPECT_THROW(recorded.run(std::vector<hfta::train::Input>{{torch::randn({6, 12})}, {torch::randint(5, {6})}}, [](auto, auto, auto) {}), hfta::Unsupported);
}

TEST(RecordLiftReplayTest, AnswerHIndexingThatDependsOnDataInsideAShapeFuses) {
  expect_fuses([](Pair& net, const Tensor& x, const Tensor& y) {
    auto h = net->one(x);
    h = torch::where(h > 0, h, h * 0.1).masked_fill(h > 1.5, 0.25);
    const auto [sorted, order] = h.sort(1);
    h = sorted + h.gather(1, order.roll(1, 1)) + torch::zeros({6, 5}).index_add(0, y.remainder(6), h) + std::get<0>(h.topk(5, 1));
    h = h.scatter_add(1, order, h * 0.5).index_put({torch::arange(6), y}, h.select(1, 0), true);
    return cross_entropy(net->two(h), y);
  });
}

TEST(RecordLiftReplayTest, AnswerHWhatDependsOnDataIsRefusedByName) {
  const std::vector<std::pair<const char*, Loss<Pair>>> steps{
      {"aten::nonzero", [](Pair& net, const Tensor& x, const Tensor&) { return net->one(x).mean() * x.nonzero().size(0); }},
      {"aten::masked_select", [](Pair& net, const Tensor& x, const Tensor&) { return net->one(x).masked_select(x.narrow(1, 0, 5) > 0).mean(); }},
      {"aten::index.Tensor", [](Pair& net, const Tensor& x, const Tensor&) { return net->one(x).index({x.select(1, 0) > 0}).mean(); }},
      {"aten::_unique2", [](Pair& net, const Tensor& x, const Tensor& y) { return net->one(x).mean() * std::get<0>(at::_unique2(y)).size(0); }},
      {"aten::bincount", [](Pair& net, const Tensor& x, const Tensor& y) { return net->one(x).mean() * y.bincount().sum(); }},
      {"aten::equal", [](Pair& net, const Tensor& x, const Tensor&) { return net->one(x).mean() * (x.equal(x * 2) ? 2 : 3); }},
      {"aten::_local_scalar_dense", [](Pair& net, const Tensor& x, const Tensor& y) { return (net->one(x) * at::one_hot(y)).mean(); }},
      {"aten::_local_scalar_dense", [](Pair& net, const Tensor& x, const Tensor& y) {
         const auto loss = cross_entropy(net->one(x), y);
         loss.backward({}, /*retain_graph=*/true);
         nn::utils::clip_grad_norm_(std::vector<Tensor>{net->one->weight}, 1.0, 2.0, /*error_if_nonfinite=*/true);
         return loss;
       }},
  };
  for (const auto& [name, step] : steps) EXPECT_THAT(refusal(step), ::testing::HasSubstr(name));
}

TEST(RecordLiftReplayTest, AnswerHInvisibleHostReadIsCaughtOnOtherData) {
  EXPECT_THAT(refusal([](Pair& net, const Tensor& x, const Tensor& y) { return cross_entropy(net->one(x), y) * (2 + x.accessor<float, 2>()[0][0]); }),
              ::testing::HasSubstr("expected the recorded step to agree with the plain one on other data"));
}

/// A fused product rounds otherwise than a plain one; here that moves the loss by as much as it is, as a gate of a deep network may.
TEST(RecordLiftReplayTest, AnswerHWhatRoundingMovesIsJudgedByItsOwnMovement) {
  EXPECT_EQ(refusal([](Pair& net, const Tensor& x, const Tensor& y) {
              return (cross_entropy(net->two(net->one(x)), y) * 1e7).sin();
            }),
            "nothing refused");
}

TEST(RecordLiftReplayTest, AnswerHHostWriteIsCaughtOnTheSameData) {
  EXPECT_THAT(refusal([](Pair& net, const Tensor& x, const Tensor& y) {
                auto h = x * 2;
                h.data_ptr<float>()[0] = 5;
                return cross_entropy(net->one(h), y);
              }, 1), ::testing::HasSubstr("expected the recorded step to agree with the plain one"));
}

/// As where rounding decides between two equal candidates of a maximum: the plain step of a check is off once.
TEST(RecordLiftReplayTest, DifferenceThatIsGoneWithParametersMovedIsRoundingAndOneThatStaysIsNot) {
  const auto off = [](int times) {
    return refusal([calls = 0, times](Pair& net, const Tensor& x, const Tensor& y) mutable {
      return cross_entropy(net->one(x), y) * (++calls > kLanes && calls <= kLanes + times ? 1.1 : 1.0);
    }, 1);
  };
  EXPECT_EQ(off(1), "nothing refused");
  EXPECT_THAT(off(100), ::testing::HasSubstr("expected the recorded step to agree with the plain one"));
}

TEST(RecordLiftReplayTest, AnswerIDropoutOfEachLaneFusesAndZeroIsAnotherStructure) {
  expect_fuses([](Pair& net, const Tensor& x, const Tensor& y) { return cross_entropy(net->two(torch::dropout(net->one(x) * net->p, net->p, true)), y); });
  expect_fuses([](Pair& net, const Tensor& x, const Tensor& y) { return cross_entropy(net->two(torch::dropout(net->one(x), net->p < 0.15 ? 0.0 : net->p, true)), y); });
}

TEST(RecordLiftReplayTest, AnswerJHostNumbersAndTensorsMadeInside) {
  expect_fuses([](Pair& net, const Tensor& x, const Tensor& y) {
    const auto weights = torch::tensor({1.0F, 0.5F, 2.0F, 1.5F, 0.25F});
    return F::cross_entropy(net->two(net->one(x) * 2.5 + 1 / 3.0) * weights, y, F::CrossEntropyFuncOptions().weight(weights).label_smoothing(0.1));
  });
}

TEST(RecordLiftReplayTest, AnswerKCapturedTensorIsRefusedByName) {
  const auto mask = torch::rand({6, 5});
  EXPECT_EQ(refusal([&](Pair& net, const Tensor& x, const Tensor& y) { return cross_entropy(net->one(x) * mask, y); }),
            "train::record: expected every tensor to be an argument of the step, a parameter or a buffer, got one from outside: argument \"other\" of "
            "aten::mul.Tensor, node 2, Float [6, 5]");
}

TEST(RecordLiftReplayTest, AnswerKMemoryOfTheCallersIsRefused) {
  std::vector<float> memory(30, 0.5F);
  EXPECT_NE(refusal([&](Pair& net, const Tensor& x, const Tensor& y) {
              return cross_entropy(net->one(x) * torch::from_blob(memory.data(), {6, 5}) + torch::from_blob(memory.data(), {6, 5}), y);
            }).find("got one from outside"),
            std::string::npos);
}

TEST(RecordLiftReplayTest, AnswerKSparseTensorsAreRefusedByLayout) {
  EXPECT_NE(refusal([](Pair& net, const Tensor& x, const Tensor& y) { return cross_entropy(torch::mm(x.detach().to_sparse(), net->one->weight.t()), y); }).find("got"),
            std::string::npos);
}

TEST(RecordLiftReplayTest, AnswerMLayoutsAndWritesIntoViews) {
  expect_fuses([](Pair& net, const Tensor& x, const Tensor& y) {
    auto base = torch::zeros({6, 7});
    auto part = base.narrow(1, 1, 5);
    part += net->one(x);
    base.select(1, 2).mul_(0.5);
    return cross_entropy(net->two(base.narrow(1, 1, 5).expand({2, 6, 5}).sum(0)), y);
  });
}

TEST(RecordLiftReplayTest, BatchNormOfATransposedInput) {
  for (const std::int64_t width : {std::int64_t{1}, kLanes})
    expect_lanes_equal_solo<Norm>([](std::int64_t lane) { return Norm(lane, false); },
                                  [](Norm& net, const Tensor& x, const Tensor& y) {
                                    const auto sequence = net->one(x).view({2, 3, 5}).transpose(1, 2);  // [N, C, L], strided
                                    return cross_entropy(net->norm(sequence).transpose(1, 2).reshape({6, 5}), y);
                                  }, {.width = width});
}

TEST(RecordLiftReplayTest, WritingIntoAnInputIsRefused) {
  EXPECT_NE(refusal([](Pair& net, const Tensor& x, const Tensor& y) {
              Tensor mine = x;
              mine.mul_(2);
              return cross_entropy(net->one(mine), y);
            }).find("got one that writes into an input"),
            std::string::npos);
}

}  // namespace record_lift_replay_test
