#include "tests/emulation/device.hpp"

#include <ucontext.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

extern "C" {
uint3 emulated_thread, emulated_block, emulated_threads,
    emulated_blocks;  // threadIdx, blockIdx, blockDim, gridDim
}

extern char __start_emulated_shared[] __attribute__((weak));
extern char __stop_emulated_shared[] __attribute__((weak));

// Frames of kernels stay on the stacks of their fibres, where the address sanitiser sees which one runs.
extern "C" const char* __asan_default_options() {
  return "detect_stack_use_after_return=0";
}

namespace emulation {
namespace {

// No power of two: the hot ends of a thousand stacks must not compete for the same few lines of the cache.
constexpr size_t kStackBytes = (64 << 10) + 1088;
constexpr int64_t kMaximumArgumentBytes = 4096;

// A stack that runs one thread after another until one of them waits at a barrier.
struct alignas(64) Fibre {
  void* place[5];  // where it goes on
  uint3 thread{};
  bool begun = false;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  ucontext_t beginning;
};

std::vector<std::unique_ptr<Fibre>> all_fibres;
std::vector<Fibre*> idle, waiting, waited;  // at a barrier; at the one before
size_t next_waited = 0;
int line_now = 0;  // of the barrier
bool parted = false;
Fibre* current = nullptr;
void* scheduler[5];

std::vector<unsigned> turns;  // of the block's threads
size_t next_turn = 0;
const std::function<void()>* body_now = nullptr;
Order order_now = Order::ascending;
bool poison_now = true;
std::mt19937 shuffler;
int64_t stream_now = 0;
std::map<const unsigned*, int64_t> stream_of_ticket;
const char* fault_now = nullptr;  // said once its fibre has stopped
bool trapped = false;
Counts counts_now;

// What a thread that waits at a shuffle has brought there.
struct Shuffle {
  Fibre* fibre = nullptr;
  unsigned mask = 0;
  int source = 0;
  void* value = nullptr;
  int line = 0;
};
struct Warp {
  unsigned waiting = 0;  // a bit for each lane
  Shuffle lanes[32];
};
Warp warps[32];                 // of the block
std::vector<Fibre*> exchanged;  // they have all that they waited for at a shuffle

unsigned number_in_block() {
  const auto [x, y, z] = emulated_thread;
  return (z * emulated_threads.y + y) * emulated_threads.x + x;
}

[[noreturn, gnu::noipa]] void go_on();

void fibre_main() {
  for (;;) {
    while (next_turn < turns.size()) {
      const unsigned t = turns[next_turn++];
      const auto [width, height, depth] = emulated_threads;
      emulated_thread = {t % width, t / width % height, t / width / height};
      (*body_now)();
    }
    idle.push_back(current);
    if (__builtin_setjmp(current->place) == 0) go_on();
  }
}

void prepare(Fibre* fibre) {
  getcontext(&fibre->beginning);
  fibre->beginning.uc_stack.ss_sp = fibre->stack.get();
  fibre->beginning.uc_stack.ss_size = kStackBytes;
  fibre->beginning.uc_link = nullptr;
  makecontext(&fibre->beginning, &fibre_main, 0);
}

Fibre* idle_fibre() {
  if (idle.empty()) {
    all_fibres.push_back(std::make_unique<Fibre>());
    prepare(all_fibres.back().get());
    return all_fibres.back().get();
  }
  Fibre* fibre = idle.back();
  idle.pop_back();
  return fibre;
}

// To the next fibre: each runs up to a barrier, or until there are no more threads. The compiler wants a jump
// elsewhere than its target, and must not know what the function that jumps leaves alone.
void go_on() {
  if (!exchanged.empty()) {
    current = exchanged.back();
    exchanged.pop_back();
  } else if (next_waited < waited.size())
    current = waited[next_waited++];
  else if (next_turn < turns.size())
    current = idle_fibre();
  else
    __builtin_longjmp(scheduler, 1);
  emulated_thread = current->thread;
  if (current->begun) __builtin_longjmp(current->place, 1);
  current->begun = true;
  setcontext(&current->beginning);
  std::abort();
}

template <class Items>
void arrange(Items& items) {
  if (order_now == Order::descending)
    std::reverse(items.begin(), items.end());
  else if (order_now == Order::shuffled)
    std::shuffle(items.begin(), items.end(), shuffler);
}

void number(std::vector<unsigned>& order, size_t count) {
  order.resize(count);
  std::iota(order.begin(), order.end(), 0u);
  arrange(order);
}

[[noreturn]] void refuse(const std::string& what) {
  throw std::runtime_error("emulated GPU: " + what);
}

void poison_shared_memory() {
  if (poison_now) {
    std::memset(__start_emulated_shared, 0xff,
                static_cast<size_t>(__stop_emulated_shared - __start_emulated_shared));
  }
}

void refuse_faults() {
  const auto waits = [](const Warp& warp) { return warp.waiting != 0; };
  if (fault_now == nullptr && std::ranges::any_of(warps, waits))
    fault_now = "lanes wait at a shuffle for others that never come";
  if (fault_now != nullptr) {
    waiting.clear();
    for (Warp& warp : warps) warp.waiting = 0;
    refuse(std::exchange(fault_now, nullptr));
  }
}

[[gnu::noinline]] void run_fibres() {
  next_waited = 0;
  if (__builtin_setjmp(scheduler) == 0) go_on();
  refuse_faults();
}

void run_block(size_t threads) {
  poison_shared_memory();
  number(turns, threads);
  next_turn = 0;
  waited.clear();
  parted = false;
  run_fibres();
  while (!waiting.empty()) {
    ++counts_now.barriers;
    if (parted || waiting.size() < threads) {
      waiting.clear();
      refuse("the threads of a block part at a barrier");
    }
    arrange(waiting);
    waited.swap(waiting);
    waiting.clear();
    run_fibres();
  }
}

}  // namespace

void set_order(Order order) {
  order_now = order;
}

void set_poison(bool poison) {
  poison_now = poison;
}

Counts& counts() {
  return counts_now;
}

void set_stream(int64_t stream) {
  stream_now = stream;
}

int64_t stream() {
  return stream_now;
}

int lane() {
  return static_cast<int>(number_in_block() % 32);
}

// All lanes of the mask are there.
static void hand_over(Warp& warp, unsigned mask, size_t bytes, int line) {
  static std::vector<int> lanes;
  lanes.clear();
  for (int k = 0; k < 32; ++k)
    if ((mask >> k & 1) != 0) lanes.push_back(k);
  for (const int k : lanes)
    if (warp.lanes[k].mask != mask || warp.lanes[k].line != line)
      fault_now = "the lanes of a warp part at a shuffle";
  if (fault_now != nullptr) return;
  char values[32][16];
  for (const int k : lanes) std::memcpy(values[k], warp.lanes[k].value, bytes);
  arrange(lanes);
  for (const int k : lanes) {
    std::memcpy(warp.lanes[k].value, values[warp.lanes[k].source], bytes);
    exchanged.push_back(warp.lanes[k].fibre);
  }
  warp.waiting &= ~mask;
}

[[gnu::noinline]] void exchange(unsigned mask, int source, void* value, size_t bytes, int line) {
  const unsigned number = number_in_block(), own = 1u << number % 32;
  Warp& warp = warps[number / 32];
  warp.lanes[number % 32] = {current, mask, source, value, line};
  warp.waiting |= own;
  current->thread = emulated_thread;
  if ((mask & own) == 0 || (mask >> source & 1) == 0)
    fault_now = "a shuffle leaves out a lane that takes part";
  if ((warp.waiting & mask) == mask && fault_now == nullptr) hand_over(warp, mask, bytes, line);
  if (__builtin_setjmp(current->place) == 0) go_on();
}

void take_ticket(const unsigned* ticket, bool releases, bool acquires) {
  if (!releases) fault_now = "a ticket does not release what was written before";
  if (!acquires) fault_now = "a ticket does not acquire what others wrote";
  if (stream_now == 0) return;
  const auto [owner, is_new] = stream_of_ticket.emplace(ticket, stream_now);
  if (!is_new && owner->second != stream_now) fault_now = "two streams take the same ticket";
}

void moved(size_t bytes) {
  counts_now.bytes += static_cast<int64_t>(bytes);
}

void trap() {
  trapped = true;
}

void** place_at_barrier(int line) {
  if (waiting.empty()) line_now = line;
  parted = parted || line != line_now;
  current->thread = emulated_thread;
  return current->place;
}

void leave_thread() {
  waiting.push_back(current);
  go_on();
}

void run_grid(dim3 grid, dim3 block, size_t argument_bytes, const std::function<void()>& body) {
  const auto bad = [](const char* what, dim3 d) {
    refuse(std::string(what) + " (" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " +
           std::to_string(d.z) + ")");
  };
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
    bad("grid", grid);
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64) bad("block", block);
  if (argument_bytes > kMaximumArgumentBytes)
    refuse("arguments of " + std::to_string(argument_bytes) + " bytes");
  emulated_blocks = {grid.x, grid.y, grid.z};
  emulated_threads = {block.x, block.y, block.z};
  body_now = &body;
  std::vector<unsigned> blocks;
  number(blocks, size_t{grid.x} * grid.y * grid.z);
  ++counts_now.launches;
  counts_now.blocks += static_cast<int64_t>(blocks.size());
  for (const unsigned b : blocks) {
    emulated_block = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
    run_block(threads);
    if (std::exchange(trapped, false)) throw Trapped("emulated GPU: a kernel has trapped");
  }
}

}  // namespace emulation
