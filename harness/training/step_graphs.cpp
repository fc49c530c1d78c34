#include "harness/training/step_graphs.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <sstream>
#include <thread>
#include <utility>

#include "harness/communicator/gradient_sync.hpp"
#include "harness/communicator/reason.hpp"
#include "harness/communicator/shared_text.hpp"
#include "harness/error.hpp"
#include "harness/upload.hpp"

namespace bnlab {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::microseconds kPollInterval{20};  // of an event
constexpr size_t kLongestReason = 256;
constexpr const char* kTakesNumbers = "each step takes other numbers from the host";

bool same_form(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.scalar_type() == b.scalar_type();
}

// Why the work failed; empty if it did not.
std::string failure_of(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const std::exception& error) {
    const std::string reason = reason_of(error);
    return reason.empty() ? "an error without a message" : reason;
  }
}

}  // namespace

void Events::record() {
  if (!device_.is_cpu()) {
    pending_.emplace_back(device_.type())
        .record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
}

bool Events::wait(size_t left) {
  const auto deadline = steady_clock::now() + timeout_;
  while (pending_.size() > left) {
    if (pending_.front().query()) {
      pending_.pop_front();
    } else if (steady_clock::now() > deadline) {
      return false;
    } else {
      std::this_thread::sleep_for(kPollInterval);
    }
  }
  return true;
}

StepGraphs::StepGraphs(const RunSpec& spec, std::vector<at::Tensor> parameters, World& world,
                       MakeRecorder make_recorder)
    : world_(world),
      parameters_(std::move(parameters)),
      timeout_s_(spec.collective_timeout_s),
      make_recorder_(spec.cuda_graph ? std::move(make_recorder) : nullptr),
      asked_for_(possible()),
      ends_(world.device(), std::chrono::duration<double>(timeout_s_)) {
  if (possible() && spec.gradient_route == GradientRoute::host) {
    give_up("gradients meet in host memory");  // the host would wait for a replay, without a limit
  }
}

Batch StepGraphs::begin(const Batch& given, bool repeats) {
  mode_ = StepMode::eager;
  if (!possible()) {
    return given;
  }
  Batch batch = given;
  batch.bytes = &bytes_;
  bytes_.begin_step(batch.index);
  if (!repeats) {
    invalidate();
    return batch;
  }
  if (recorder_) {
    TORCH_INTERNAL_ASSERT(same_form(batch.images, batch_.images) && same_form(batch.labels, batch_.labels));
    mode_ = StepMode::replayed;
    wait_for_steps(kAhead - 1);
    batch_.images.copy_(batch.images, /*non_blocking=*/true);
    batch_.labels.copy_(batch.labels, /*non_blocking=*/true);
    return batch_;
  }
  if (alike_ == wanted_) {
    const std::string why = first_reason(uploads != uploads_ ? kTakesNumbers : failure_of([&] {
      recorder_ = make_recorder_();
      batch_ = batch;
      batch_.images = batch.images.clone();
      batch_.labels = batch.labels.clone();
    }));
    if (why.empty()) {
      mode_ = StepMode::recorded;
      return batch_;
    }
    give_up(why);
  }
  if (alike_ <= 1) {  // what the first of them uploads may be for all that follow
    uploads_ = uploads;
  }
  ++alike_;
  return batch;
}

at::Tensor StepGraphs::forward(const std::function<at::Tensor()>& work) {
  if (mode_ == StepMode::recorded && !record(work)) {
    mode_ = StepMode::eager;
  }
  if (mode_ == StepMode::eager) {
    loss_ = work();
  } else {
    bytes_.write();
    recorder_->replay(Half::forward);
  }
  return loss_;
}

bool StepGraphs::record(const std::function<at::Tensor()>& work) {
  const Ledger before = world_.ledger();
  bytes_.begin_recording();
  std::string why = failure_of([&] {
    recorder_->record(Half::forward, [this, work] { loss_ = work(); });
    recorder_->record(Half::backward, [this] { loss_.backward(); });
  });
  bytes_.end_recording();
  if (why.empty() && uploads != uploads_) {
    why = kTakesNumbers;
  }
  const Ledger after = world_.ledger();
  why = first_reason(why);
  if (!why.empty()) {
    world_.ledger() = before;
    drop_gradients(parameters_);
    give_up(why);
    return false;
  }
  wanted_ = kStepsBefore;
  loss_ = loss_.detach();
  for (const at::Tensor& parameter : parameters_) {
    gradients_.push_back(parameter.grad());
  }
  for (size_t p = 0; p < traffic_.size(); ++p) {
    const Traffic was = before.of(static_cast<Purpose>(p)), is = after.of(static_cast<Purpose>(p));
    traffic_[p] = {is.collectives - was.collectives, is.bytes - was.bytes};
  }
  return true;
}

void StepGraphs::backward() {
  if (mode_ == StepMode::eager) {
    std::exchange(loss_, at::Tensor()).backward();  // nothing of a pass outlives its step
    return;
  }
  recorder_->replay(Half::backward);
  if (mode_ == StepMode::replayed) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_[i].grad().defined()) {
        parameters_[i].mutable_grad() = gradients_[i];
      }
    }
    for (size_t p = 0; p < traffic_.size(); ++p) {
      const Traffic now = world_.ledger().of(static_cast<Purpose>(p));
      world_.ledger().set(static_cast<Purpose>(p),
                          {now.collectives + traffic_[p].collectives, now.bytes + traffic_[p].bytes});
    }
  }
  ++replayed_;
  ends_.record();
}

void StepGraphs::invalidate() {
  wait_for_steps(0);
  drop_recording();
}

void StepGraphs::drop_recording() {
  recorder_.reset();
  batch_ = Batch();
  loss_ = at::Tensor();
  gradients_.clear();
  alike_ = 0;
}

void StepGraphs::give_up(const std::string& why) {
  drop_recording();
  why_not_ = why;
  if (why == kTakesNumbers) {
    wanted_ *= 2;  // so that a run whose every step does so rarely pays for trying
  } else {
    make_recorder_ = nullptr;
  }
}

std::string StepGraphs::first_reason(const std::string& here) {
  return first_text(here, kLongestReason, world_.device(), world_.gradients());
}

void StepGraphs::wait_for_steps(size_t left) {
  if (!ends_.wait(left)) {
    std::ostringstream message;
    message << "a replayed training step has not ended within " << timeout_s_
            << " s (collective_timeout_s); another rank may have gone";
    throw Error(Error::Kind::communication, message.str());
  }
}

Json StepGraphs::summary() const {
  if (!asked_for_) {
    return nullptr;
  }
  Json summary = {{"replayed_steps", replayed_}};
  if (replayed_ == 0 || !possible()) {
    summary["why_not"] = why_not_;
  }
  return summary;
}

}  // namespace bnlab
