#include "harness/training/step_graphs.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <sstream>
#include <thread>
#include <utility>

#include "harness/error.hpp"
#include "harness/upload.hpp"

namespace bnlab {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::microseconds kBetweenLooks{20};  // at an event

bool same_form(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.scalar_type() == b.scalar_type();
}

}  // namespace

void Ends::add() {
  if (!device_.is_cpu()) {
    ends_.emplace_back(device_.type()).record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
}

bool Ends::wait(size_t left) {
  const auto deadline = steady_clock::now() + timeout_;
  while (ends_.size() > left) {
    if (ends_.front().query()) {
      ends_.pop_front();
    } else if (steady_clock::now() > deadline) {
      return false;
    } else {
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }
  return true;
}

StepGraphs::StepGraphs(const RunSpec& spec, std::vector<at::Tensor> parameters, World& world,
                       NewRecorder recorders)
    : world_(world),
      parameters_(std::move(parameters)),
      timeout_s_(spec.collective_timeout_s),
      recorders_(spec.cuda_graph ? std::move(recorders) : nullptr),
      ends_(world.device(), std::chrono::duration<double>(timeout_s_)) {
  if (!recorders_) {
    why_none_ = "there are no graphs on the device " + world.device().str();
  } else if (spec.gradient_route == GradientRoute::host) {
    recorders_ = nullptr;  // the host would wait for a replay, without a limit
    why_none_ = "gradients meet in host memory";
  }
}

Batch StepGraphs::begin(const Batch& batch, bool repeats) {
  way_ = Way::by_itself;
  if (!recorders_) {
    return batch;
  }
  if (!repeats) {
    forget();
    return batch;
  }
  if (recorder_) {
    TORCH_INTERNAL_ASSERT(same_form(batch.images, batch_.images) && same_form(batch.labels, batch_.labels));
    way_ = Way::replayed;
    wait_for_steps(kAhead - 1);
    batch_.images.copy_(batch.images, /*non_blocking=*/true);
    batch_.labels.copy_(batch.labels, /*non_blocking=*/true);
    return batch_;
  }
  if (alike_ == kStepsBefore) {
    if (nothing_uploaded()) {
      way_ = Way::recorded;
      recorder_ = recorders_();
      batch_ = batch;
      batch_.images = batch.images.clone();
      batch_.labels = batch.labels.clone();
      booked_ = traffic();
      return batch_;
    }
    recorders_ = nullptr;
    why_none_ = "each step takes other numbers from the host";
    return batch;
  }
  if (alike_ == 0) {
    uploads_ = uploads;
  }
  ++alike_;
  return batch;
}

at::Tensor StepGraphs::forward(const std::function<at::Tensor()>& work) {
  if (way_ == Way::by_itself) {
    loss_ = work();
    return loss_;
  }
  if (way_ == Way::recorded) {
    recorder_->record(Half::forward, [&] { loss_ = work(); });
  }
  recorder_->replay(Half::forward);
  return loss_;
}

void StepGraphs::backward() {
  if (way_ == Way::by_itself) {
    std::exchange(loss_, at::Tensor()).backward();  // nothing of a pass outlives its step
    return;
  }
  if (way_ == Way::recorded) {
    recorder_->record(Half::backward, [&] { loss_.backward(); });
    loss_ = loss_.detach();
    gradients_.clear();
    for (const at::Tensor& parameter : parameters_) {
      gradients_.push_back(parameter.grad());
    }
    const Traffics now = traffic();
    for (size_t p = 0; p < now.size(); ++p) {
      booked_[p] = {now[p].collectives - booked_[p].collectives, now[p].bytes - booked_[p].bytes};
    }
  }
  recorder_->replay(Half::backward);
  if (way_ == Way::replayed) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_[i].grad().defined()) {
        parameters_[i].mutable_grad() = gradients_[i];
      }
    }
    const Traffics now = traffic();
    for (size_t p = 0; p < now.size(); ++p) {
      world_.ledger().set(static_cast<Purpose>(p),
                          {now[p].collectives + booked_[p].collectives, now[p].bytes + booked_[p].bytes});
    }
  }
  ++replayed_;
  ends_.add();
}

void StepGraphs::forget() {
  wait_for_steps(0);
  recorder_.reset();
  batch_ = Batch();
  loss_ = at::Tensor();
  gradients_.clear();
  alike_ = 0;
}

bool StepGraphs::nothing_uploaded() {
  at::Tensor here = at::full({}, uploads - uploads_, at::kLong).to(world_.device());
  world_.gradients().all_reduce(here, Purpose::control);
  return here.item<int64_t>() == 0;
}

void StepGraphs::wait_for_steps(size_t left) {
  if (!ends_.wait(left)) {
    std::ostringstream message;
    message << "a replayed training step has not ended within " << timeout_s_
            << " s (collective_timeout_s); another rank may have gone";
    throw Error(Error::Kind::communication, message.str());
  }
}

StepGraphs::Traffics StepGraphs::traffic() const {
  Traffics all;
  for (size_t p = 0; p < all.size(); ++p) {
    all[p] = world_.ledger().of(static_cast<Purpose>(p));
  }
  return all;
}

Json StepGraphs::summary() const {
  Json summary = {{"replayed_steps", replayed_}};
  if (replayed_ == 0) {
    summary["why_none"] = why_none_;
  }
  return summary;
}

}  // namespace bnlab
