// A stage: epochs of mini-batch steps and validations of one network, or of several with one joint loss.
#include <cmath>
#include <memory>
#include <numeric>

#include "mlp.h"
#include "vgg.h"

namespace alma {
namespace {

struct Settings {
  int adadelta;  // 0: SGD
  float learning_rate, momentum, weight_decay, rho, eps;
  float logit_scale;  // of the sum of the logits of all networks
};

class Stage {
 public:
  Stage(const Settings& settings, int threads) : settings_(settings), threads_(threads) {}

  Threads& threads() { return threads_; }
  void add(std::unique_ptr<Network> network) { networks_.push_back(std::move(network)); }

  Network& network(int number) { return *networks_[number]; }

  void train_epoch(const Examples& train, const std::int64_t* order, const Crops& crops, long count, long batch_size) {
    for (long start = 0; start < count; start += batch_size) {
      const long size = std::min(batch_size, count - start);
      const bool whole = order == nullptr;  // the same mini-batch in every epoch
      batch_.stays = whole;
      if (!whole || batch_.count != count)
        networks_[0]->gather(train, whole ? nullptr : order + start, at(crops, start), size, batch_);
      joint_forward(batch_, true);
      cross_entropy_gradient(batch_);
      for (auto& network : networks_) {
        network->backward(batch_, logits_, [&](long place, const float* gradient, long size) {
          update(*network, place, gradient, size);
        });
      }
    }
  }

  // Adds the cross-entropies and the wrong answers of the examples.
  void score(const Examples& valid, long count, double* loss, long* wrong) {
    constexpr long kExamples = 128;
    if (valid_.empty())
      for (long start = 0; start < count; start += kExamples) {
        std::vector<std::int64_t> index;
        for (long i = start; i < std::min(count, start + kExamples); ++i) index.push_back(i);
        valid_.emplace_back();
        valid_.back().stays = count <= kExamples;
        networks_[0]->gather(valid, index.data(), Crops{}, static_cast<long>(index.size()), valid_.back());
      }
    for (const Batch& batch : valid_) {
      joint_forward(batch, false);
      const long columns = padded(batch.count);
      for (long i = 0; i < columns; i += kLanes) {
        float total[kLanes], top[kLanes];
        Vector highest, sums;
        softmax_terms(i, columns, highest, sums);
        std::memcpy(total, &sums, sizeof total);
        std::memcpy(top, &highest, sizeof top);
        for (long lane = 0; lane < kLanes && i + lane < batch.count; ++lane) {
          const float right = logits_[batch.labels[i + lane] * columns + i + lane];
          *loss += std::log(total[lane]) + top[lane] - right;
          *wrong += answer(i + lane, columns) != batch.labels[i + lane];
        }
      }
    }
  }

 private:
  static Crops at(const Crops& crops, long start) {
    return crops.top ? Crops{crops.top + start, crops.left + start, crops.mirror + start, crops.padding} : crops;
  }

  // Leaves in `logits_` the scaled sum of the logits of all networks.
  void joint_forward(const Batch& batch, bool training) {
    const long size = networks_[0]->classes * padded(batch.count);
    if (logits_.size() < size) logits_.resize(size);
    for (std::size_t number = 0; number < networks_.size(); ++number) {
      const float* logits = networks_[number]->forward(batch, training);
      for (long i = 0; i < size; i += kLanes)
        store(logits_ + i, number ? load(logits_ + i) + load(logits + i) : load(logits + i));
    }
    if (settings_.logit_scale != 1.0f)
      for (long i = 0; i < size; i += kLanes) store(logits_ + i, load(logits_ + i) * settings_.logit_scale);
  }

  // The largest logit of kLanes columns, and the sum of exp(logit - largest).
  void softmax_terms(long column, long columns, Vector& highest, Vector& sums) const {
    const long classes = networks_[0]->classes;
    highest = load(logits_ + column);
    for (long k = 1; k < classes; ++k) highest = larger(load(logits_ + k * columns + column), highest);
    sums = Vector{};
    for (long k = 0; k < classes; ++k) sums += exp(load(logits_ + k * columns + column) - highest);
  }

  // The class of the largest logit, the first of equal ones; a logit of NaN is the largest, as in PyTorch.
  long answer(long column, long columns) const {
    const auto logit = [&](long k) { return logits_[k * columns + column]; };
    long best = 0;
    for (long k = 1; k < networks_[0]->classes; ++k)
      if (logit(k) > logit(best) || (std::isnan(logit(k)) && !std::isnan(logit(best)))) best = k;
    return best;
  }

  // Replaces the logits by the gradient of their mean cross-entropy.
  void cross_entropy_gradient(const Batch& batch) {
    const long columns = padded(batch.count), classes = networks_[0]->classes;
    const float share = settings_.logit_scale / static_cast<float>(batch.count);
    for (long i = 0; i < columns; i += kLanes) {
      Vector highest, sums, weight{};
      softmax_terms(i, columns, highest, sums);
      for (long lane = 0; lane < kLanes && i + lane < batch.count; ++lane) weight[lane] = share;
      const Vector factor = weight / sums;
      for (long k = 0; k < classes; ++k) {
        float* at = logits_ + k * columns + i;
        store(at, exp(load(at) - highest) * factor);
      }
      for (long lane = 0; lane < kLanes && i + lane < batch.count; ++lane)
        logits_[batch.labels[i + lane] * columns + i + lane] -= share;
    }
  }

  // The formulas of torch.optim.SGD and torch.optim.Adadelta; the compiler turns the loops into vector instructions.
  void update(Network& network, long place, const float* __restrict gradient, long size) const {
    const Settings s = settings_;
    float* __restrict theta = network.parameters + place;
    float* __restrict first = network.first + place;
    float* __restrict second = network.second + place;
    if (s.adadelta) {
      for (long i = 0; i < size; ++i) {
        const float g = gradient[i] + s.weight_decay * theta[i];
        first[i] = s.rho * first[i] + (1.0f - s.rho) * g * g;
        const float step = std::sqrt((second[i] + s.eps) / (first[i] + s.eps)) * g;
        second[i] = s.rho * second[i] + (1.0f - s.rho) * step * step;
        theta[i] -= s.learning_rate * step;
      }
    } else {
      for (long i = 0; i < size; ++i) {
        first[i] = s.momentum * first[i] + (gradient[i] + s.weight_decay * theta[i]);
        theta[i] -= s.learning_rate * first[i];
      }
    }
  }

  Settings settings_;
  Threads threads_;
  std::vector<std::unique_ptr<Network>> networks_;
  Batch batch_;
  std::vector<Batch> valid_;
  Buffer logits_;
};

std::vector<Gates> gates_of(const int* counts, int mixtures, const int* splits, bool tree) {
  std::vector<Gates> gates;
  for (int i = 0; i < mixtures; splits += counts[i++]) gates.emplace_back(std::vector<int>(splits, splits + counts[i]), tree);
  return gates;
}

}  // namespace
}  // namespace alma

// The functions that Python calls. No exception may leave them: they return null or -1, since only the memory can be short.
extern "C" {

// sizes: inputs, hidden units, classes; counts: the number of gates of each hidden layer; splits: theirs, one after
// another; tree: 0 for flat mixtures.
void* alma_mlp_stage(int networks, const long* sizes, int layers, const int* counts, const int* splits, int tree,
                     const alma::Settings* settings) try {
  auto stage = std::make_unique<alma::Stage>(*settings, 1);
  for (int i = 0; i < networks; ++i)
    stage->add(std::make_unique<alma::Mlp>(std::vector<long>(sizes, sizes + layers + 1),
                                           alma::gates_of(counts, layers - 1, splits, tree)));
  return stage.release();
} catch (...) {
  return nullptr;
}

// widths: channels of the images, then of each convolution; lengths: the number of convolutions of each chain; counts,
// splits, tree: as above, for each mixture of chains.
void* alma_vgg_stage(int networks, const long* widths, const int* lengths, int chains, const int* counts,
                     const int* splits, int tree, long side, int bias, long classes, const alma::Settings* settings,
                     int threads) try {
  const std::vector<int> by_chain(lengths, lengths + chains);
  const std::vector<long> all(widths, widths + std::accumulate(lengths, lengths + chains, 1));
  auto stage = std::make_unique<alma::Stage>(*settings, threads);
  for (int i = 0; i < networks; ++i)
    stage->add(std::make_unique<alma::Vgg>(all, by_chain, alma::gates_of(counts, chains, splits, tree), side, bias,
                                           classes, stage->threads()));
  return stage.release();
} catch (...) {
  return nullptr;
}

void alma_read(void* stage, int network, const float* from) {
  static_cast<alma::Stage*>(stage)->network(network).read(from);
}

void alma_write(void* stage, int network, float* to) { static_cast<alma::Stage*>(stage)->network(network).write(to); }

int alma_train_epoch(void* stage, const alma::Examples* train, const std::int64_t* order, const alma::Crops* crops,
                     long count, long batch_size) try {
  static_cast<alma::Stage*>(stage)->train_epoch(*train, order, *crops, count, batch_size);
  return 0;
} catch (...) {
  return -1;
}

int alma_score(void* stage, const alma::Examples* valid, long count, double* loss, long* wrong) try {
  static_cast<alma::Stage*>(stage)->score(*valid, count, loss, wrong);
  return 0;
} catch (...) {
  return -1;
}

void alma_delete(void* stage) { delete static_cast<alma::Stage*>(stage); }
}
