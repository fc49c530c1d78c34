#include "harness/training/step_graphs.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/env.h>

#include <algorithm>
#include <exception>
#include <sstream>
#include <thread>
#include <utility>

#include "harness/communicator/gradient_sync.hpp"
#include "harness/communicator/reason.hpp"
#include "harness/communicator/shared_text.hpp"
#include "harness/support/error.hpp"
#include "harness/support/upload.hpp"

namespace bnlab {
namespace {

using std::chrono::steady_clock;

// The host looks for an event without a pause at first: a sleep takes 70 us at least, half of a short step.
constexpr std::chrono::microseconds kSpin{50};
constexpr std::chrono::microseconds kPollInterval{20};
constexpr size_t kLongestReason = 256;
constexpr const char* kBlockingWait =
    "TORCH_NCCL_BLOCKING_WAIT lets the host wait for every exchange; unset it";
constexpr const char* kTakesNumbers = "each step takes other numbers from the host";

// As c10d reads the variable, and the name that it had before.
bool host_waits_for_nccl() {
  return c10::utils::check_env("TORCH_NCCL_BLOCKING_WAIT") == true ||
         c10::utils::check_env("NCCL_BLOCKING_WAIT") == true;
}

std::string too_few_alike() {
  return "no " + std::to_string(StepGraphs::kStepsBefore + 1) + " steps that are alike followed each other";
}

bool same_form(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.scalar_type() == b.scalar_type();
}

// A batch in memory of its own, laid out alike.
Batch copied(const Batch& batch) {
  Batch copy = batch;
  if (batch.memory.defined()) {
    copy.memory = batch.memory.clone();
    const auto there = [&](const at::Tensor& part) {
      return copy.memory.view(part.scalar_type())
          .as_strided(part.sizes(), part.strides(), part.storage_offset());
    };
    copy.images = there(batch.images);
    copy.labels = there(batch.labels);
  } else {
    copy.images = batch.images.clone();
    copy.labels = batch.labels.clone();
  }
  return copy;
}

void copy_into(const Batch& copy, const Batch& batch) {
  if (copy.memory.defined()) {
    copy.memory.copy_(batch.memory, /*non_blocking=*/true);
    return;
  }
  copy.images.copy_(batch.images, /*non_blocking=*/true);
  copy.labels.copy_(batch.labels, /*non_blocking=*/true);
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
  const auto begin = steady_clock::now();
  while (pending_.size() > left) {
    if (pending_.front().query()) {
      pending_.pop_front();
      continue;
    }
    const auto waited = steady_clock::now() - begin;
    if (waited > timeout_) return false;
    if (waited > kSpin) std::this_thread::sleep_for(kPollInterval);
  }
  return true;
}

StepGraphs::StepGraphs(const RunSpec& spec, std::vector<at::Tensor> parameters, World& world,
                       MakeRecorder make_recorder, const std::string& why_not)
    : world_(world),
      parameters_(std::move(parameters)),
      timeout_s_(spec.collective_timeout_s),
      make_recorder_(spec.cuda_graph ? std::move(make_recorder) : nullptr),
      asked_for_(possible()),
      ends_(world.device(), std::chrono::duration<double>(timeout_s_)),
      why_not_(too_few_alike()) {
  if (possible() && !why_not.empty())
    give_up(why_not);
  else if (possible() && spec.gradient_route == GradientRoute::host)
    give_up("gradients meet in host memory");  // the host would wait for a replay, without a limit
  else if (possible() && world.size() > 1 && host_waits_for_nccl())
    give_up(kBlockingWait);
}

Batch StepGraphs::begin(const Batch& given, bool repeats) {
  mode_ = StepMode::eager;
  if (!possible()) return given;
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
    copy_into(batch_, batch);
    return batch_;
  }
  if (alike_ == wanted_) {
    const std::string why = first_reason(uploads != uploads_ ? kTakesNumbers : failure_of([&] {
      recorder_ = make_recorder_();
      batch_ = copied(batch);
    }));
    if (why.empty()) {
      mode_ = StepMode::recorded;
      return batch_;
    }
    give_up(why);
  }
  if (alike_ <= 1)  // what the first of them uploads may be for all that follow
    uploads_ = uploads;
  ++alike_;
  return batch;
}

at::Tensor StepGraphs::forward(const std::function<at::Tensor()>& work,
                               const std::function<void()>& after_backward) {
  if (mode_ == StepMode::recorded && !record(work, after_backward)) mode_ = StepMode::eager;
  if (mode_ == StepMode::eager) {
    loss_ = work();
    after_backward_ = after_backward;
  } else {
    bytes_.write();
    recorder_->replay(StepPart::forward);
  }
  return loss_;
}

// Returns the same on all ranks.
bool StepGraphs::record(const std::function<at::Tensor()>& work,
                        const std::function<void()>& after_backward) {
  const Ledger before = world_.ledger();
  bytes_.begin_recording();
  std::string why = failure_of([&] {
    recorder_->record(StepPart::forward, [this, work] { loss_ = work(); });
    recorder_->record(StepPart::backward, [this, after_backward] {
      loss_.backward();
      after_backward();
    });
  });
  if (why.empty() && uploads != uploads_) why = kTakesNumbers;
  const Ledger after = world_.ledger();
  why = first_reason(why);
  bytes_.end_recording(/*failed=*/!why.empty());
  if (!why.empty()) {
    world_.ledger() = before;
    drop_gradients(parameters_);
    give_up(why);
    return false;
  }
  wanted_ = kStepsBefore;
  loss_ = loss_.detach();
  for (const at::Tensor& parameter : parameters_) gradients_.push_back(parameter.grad());
  for (size_t p = 0; p < traffic_.size(); ++p) {
    const Traffic was = before.of(static_cast<Purpose>(p)), is = after.of(static_cast<Purpose>(p));
    traffic_[p] = {is.collectives - was.collectives, is.bytes - was.bytes};
  }
  return true;
}

void StepGraphs::backward() {
  if (mode_ == StepMode::eager) {
    std::exchange(loss_, at::Tensor()).backward();  // nothing of a pass outlives its step
    std::exchange(after_backward_, nullptr)();
    return;
  }
  recorder_->replay(StepPart::backward);
  if (mode_ == StepMode::replayed) {
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (!parameters_[i].grad().defined()) parameters_[i].mutable_grad() = gradients_[i];
    for (size_t p = 0; p < traffic_.size(); ++p) {
      const Traffic now = world_.ledger().of(static_cast<Purpose>(p));
      world_.ledger().set(static_cast<Purpose>(p), {now.collectives + traffic_[p].collectives,
                                                    now.bytes + traffic_[p].bytes, now.host_ns});
    }
  }
  ++replayed_;
}

void StepGraphs::update(const Update& work, bool records) {
  if (mode_ == StepMode::eager) {
    work(records && possible() ? &bytes_ : nullptr);
    return;
  }
  if (mode_ == StepMode::recorded && records) record_update(work);
  if (update_)
    update_->replay(StepPart::update);
  else
    work(nullptr);
  ends_.record();
}

// Where it fails on one rank nothing of it has been done, and that rank makes its updates eagerly: they come
// to the same.
void StepGraphs::record_update(const Update& work) {
  bytes_.begin_recording();
  why_no_updates_ = failure_of([&] {
    update_ = make_recorder_();
    update_->record(StepPart::update, [this, work] { work(&bytes_); });
  });
  bytes_.end_recording(/*failed=*/false);
  if (!why_no_updates_.empty()) update_.reset();
}

void StepGraphs::invalidate() {
  wait_for_steps(0);
  drop_recording();
}

void StepGraphs::drop_recording() {
  recorder_.reset();
  update_.reset();
  batch_ = Batch();
  loss_ = at::Tensor();
  gradients_.clear();
  alike_ = 0;
}

void StepGraphs::give_up(const std::string& why) {
  drop_recording();
  why_not_ = why;
  if (why == kTakesNumbers)
    wanted_ *= 2;  // so that a run whose every step does so rarely pays for trying
  else
    make_recorder_ = nullptr;
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
  if (!asked_for_) return nullptr;
  Json summary = {{"replayed_steps", replayed_}};
  if (replayed_ == 0 || !possible()) summary["why_not"] = why_not_;
  if (!why_no_updates_.empty()) summary["why_no_updates"] = why_no_updates_;
  return summary;
}

std::string why_none_is_replayed(int64_t steps, const std::function<bool(int64_t)>& repeats,
                                 const std::function<bool(int64_t)>& pauses) {
  for (int64_t step = 0, alike = 0; step < steps; ++step) {
    alike = !repeats(step) ? 0 : pauses(step) ? 1 : alike + 1;
    if (alike > StepGraphs::kStepsBefore) return "";
  }
  return too_few_alike();
}

}  // namespace bnlab
