// What the parts of the simulated GPU share: work on streams, and whose memory an address is. README.md
// says what the whole is for. The false CUDA runtime (libcudart.so.13) exports this.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

namespace simgpu {

// One execution of a piece of work, asked again and again until it says that it has ended.
using Step = std::function<bool()>;
// Begins one execution. A graph calls it once for each replay.
using Maker = std::function<Step()>;

// Work that is done in one go.
inline Maker once(std::function<void()> work) {
  return [work = std::move(work)] {
    return Step([work] {
      work();
      return true;
    });
  };
}

// What a piece of work reads or writes.
struct Access {
  const void* first;
  size_t bytes;
  bool writes;
};

enum class Sort { kernel, copy, set, collective, wait, graph, give_back };

// Gives work to a stream. It is done at once, or later in mode late, or recorded where the stream captures.
// Pieces of work with the same `chain` (not null) are done in the order in which they were given, whatever
// their streams.
cudaError_t enqueue(cudaStream_t stream, Sort sort, std::string name, Maker maker,
                    std::vector<Access> accesses = {}, const void* chain = nullptr);

bool capturing(cudaStream_t stream);
// Whether what the stream is given now may be done after the call has returned, or at replays.
bool deferred(cudaStream_t stream);
bool late();  // the mode

// Whether work has to say what it touches (races.hpp). What it cannot say before it is done it may say then:
// while a Watch lives, by `touched`.
bool watches_races();
class Watch {
 public:
  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  static void touched(const void* first, size_t bytes, bool writes);
  inline static thread_local bool on = false;
};
// The host has taken pinned memory that was free, or gives it back, where its copies are done.
void host_takes(void* first, size_t bytes);
void host_gives_back(void* first, size_t bytes);

bool on_device(const void* address);  // in memory of any device
int device_count();

// A kernel has trapped: from now on CUDA refuses everything in this process, and runs no kernel.
void break_devices();
bool devices_are_broken();

// Ends the process with a message and a backtrace: something that the simulation cannot do.
[[noreturn]] void die(const std::string& what);
void note(const std::string& what);  // on stderr where SIMGPU_VERBOSE is set

// The value of an environment variable, or `otherwise` where it is not set or empty.
const char* setting(const char* name, const char* otherwise);

}  // namespace simgpu
