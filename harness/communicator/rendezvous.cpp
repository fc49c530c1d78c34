#include "harness/communicator/rendezvous.hpp"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <future>
#include <iostream>
#include <map>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "harness/communicator/host/network.hpp"
#include "harness/communicator/world_parts.hpp"
#include "harness/support/error.hpp"
#include "harness/support/json.hpp"

namespace bnlab {
namespace {

// Beyond the timeout, so that c10d can say by itself what is wrong.
constexpr std::chrono::seconds kGrace{1};
constexpr std::chrono::milliseconds kPoll{5}, kSlowPoll{100};

// Rank 0's server where no launcher serves a store. It lives as long as the process: while one of its worlds
// ends, a faster rank may already be asking for the next.
void serve(const Rendezvous& at) {
  static std::map<int, c10::intrusive_ptr<c10d::TCPStore>> servers;
  if (servers.contains(at.port)) return;
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(at.port);
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = at.timeout;
  if (is_loopback(at.address))  // c10d itself would listen on every interface
    options.masterListenFd = LoopbackSocket(at.address, at.port).release();
  servers[at.port] = c10::make_intrusive<c10d::TCPStore>(at.address, options);
}

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string text(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

// "rank 3", "ranks 1, 2, 3 and 60 more"
std::string ranks_of(const std::map<int, std::string>& by_rank) {
  constexpr size_t kShown = 8;
  std::string text;
  size_t shown = 0;
  for (auto rank = by_rank.begin(); rank != by_rank.end() && shown < kShown; ++rank, ++shown)
    text += (shown == 0 ? "" : ", ") + std::to_string(rank->first);
  const size_t more = by_rank.size() - shown;
  return (by_rank.size() == 1 ? "rank " : "ranks ") + text +
         (more == 0 ? "" : " and " + std::to_string(more) + " more");
}

std::string receipt(const std::string& call, int rank) {
  return "received/" + call + "/" + std::to_string(rank);
}

// Says whom a rank waits for: after some seconds, and then every ten.
class Waiting {
 public:
  explicit Waiting(const Rendezvous& at) : at_(at), said_(Clock::now() - kSilence + kFirst) {}

  bool is_over() const { return Clock::now() > deadline_; }

  // Called again and again meanwhile. `reason`: why none is there, as far as that is known.
  void say(const std::string& ranks, const std::string& reason = "") {
    const auto now = Clock::now();
    if (now - said_ < kSilence) return;
    said_ = now;
    const auto left = std::chrono::ceil<std::chrono::seconds>(std::max(deadline_ - now, Clock::duration()));
    std::cerr << "bnlab: rank " << at_.rank << " waits for " << ranks << " at " << at_.address << ":"
              << at_.port << (reason.empty() ? "" : " (" + reason + ")") << ", " << left.count()
              << " s left. To do without: bnlab with --ranks N, or unset what bnlab doctor names"
              << std::endl;
  }

  // The error when it is over.
  Error missed(const std::string& ranks, const std::string& reason = "") const {
    const auto waited = std::chrono::ceil<std::chrono::seconds>(at_.timeout).count();
    return {Error::Kind::communication,
            "rank " + std::to_string(at_.rank) + " waited " + std::to_string(waited) + " s for " + ranks +
                " at " + at_.address + ":" + std::to_string(at_.port) +
                (reason.empty() ? ": not started yet, or dead" : ": " + reason) + "; " + kMeetingTimeout +
                " is how long ranks wait for each other"};
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kFirst{5}, kSilence{10};

  const Rendezvous& at_;
  Clock::time_point said_, deadline_ = Clock::now() + at_.timeout;
};

// Until somebody listens there: c10d, which would wait in silence, then finds the store at once.
void wait_for_listener(const Rendezvous& at) {
  const std::string whom = at.store_exists ? "the launcher's store" : "rank 0";
  Waiting waiting(at);
  for (std::string reason; !(reason = why_none_listens(at.address, at.port)).empty();) {
    if (waiting.is_over()) throw waiting.missed(whom, reason);
    waiting.say(whom, reason);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// A launcher's store outlives the programs that it starts, and keeps their keys. Every rank therefore asks
// with a word that is new in each call, and rank 0 answers every word of a rank until that rank has left a
// receipt for this call. The word is read before the receipt is looked for: a rank asks the next call's
// question once it has left the receipt of this one's, and that question must not get this answer.
void answer_all(c10d::Store& store, const Rendezvous& at, const std::string& shared) {
  const std::string me = new_word();
  std::map<int, std::string> answered;  // rank without a receipt -> the last word that was answered
  for (int rank = 1; rank < at.size; ++rank) answered[rank];
  Waiting waiting(at);
  const auto is_done = [&](std::pair<const int, std::string>& of_rank) {
    auto& [rank, last] = of_rank;
    const std::string question = "question/" + std::to_string(rank);
    const std::string word = store.check({question}) ? text(store.get(question)) : "";
    if (store.check({receipt(me, rank)})) return true;
    if (word != last) {
      store.set("answer/" + word, bytes(me + "\n" + shared));
      last = word;
    }
    return false;
  };
  while (!answered.empty()) {
    for (auto of_rank = answered.begin(); of_rank != answered.end();)
      of_rank = is_done(*of_rank) ? answered.erase(of_rank) : std::next(of_rank);
    if (answered.empty()) break;
    const std::string missing = ranks_of(answered);
    if (waiting.is_over()) throw waiting.missed(missing);
    waiting.say(missing);
    std::this_thread::sleep_for(kPoll);
  }
}

std::string ask(c10d::Store& store, const Rendezvous& at) {
  const std::string word = new_word();
  store.set("question/" + std::to_string(at.rank), bytes(word));
  Waiting waiting(at);
  for (std::chrono::milliseconds pause = kPoll; !store.check({"answer/" + word});
       pause = std::min(2 * pause, kSlowPoll)) {
    if (waiting.is_over()) throw waiting.missed("rank 0");
    waiting.say("rank 0");
    std::this_thread::sleep_for(pause);
  }
  const std::string answer = text(store.get("answer/" + word));
  const size_t line = answer.find('\n');
  store.set(receipt(answer.substr(0, line), at.rank), bytes("here"));
  return answer.substr(line + 1);
}

// A store at the rendezvous. c10d waits for the server's greeting without a limit, so the wait has a thread
// of its own. The thread is left behind where rank 0 is stuck, or where another program holds the port and is
// silent.
c10::intrusive_ptr<c10d::Store> greeted_store(const Rendezvous& at, const c10d::TCPStoreOptions& options) {
  std::packaged_task<c10::intrusive_ptr<c10d::Store>()> greet(
      [address = at.address, options] { return c10::make_intrusive<c10d::TCPStore>(address, options); });
  auto greeted = greet.get_future();
  std::thread waiting(std::move(greet));
  if (greeted.wait_for(at.timeout + kGrace) == std::future_status::timeout) {
    waiting.detach();
    throw std::runtime_error(
        "somebody listens there but does not answer: rank 0 is stuck, or another program holds the port");
  }
  waiting.join();
  return greeted.get();
}

}  // namespace

std::string new_word() {
  std::random_device chance;
  return std::to_string(chance()) + "-" + std::to_string(chance());
}

c10::intrusive_ptr<c10d::Store> store_at(const Rendezvous& at) {
  if (at.size == 1) return c10::make_intrusive<c10d::HashStore>();
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(at.port);
  options.waitWorkers = false;
  options.timeout = at.timeout;
  if (at.listen_fd >= 0) {
    options.isServer = true;
    options.masterListenFd = at.listen_fd;
  } else if (at.rank == 0 && !at.store_exists) {
    serve(at);
  }
  if (!options.isServer && (at.rank > 0 || at.store_exists)) wait_for_listener(at);
  return c10::make_intrusive<c10d::PrefixStore>("bnlab/" + at.prefix, greeted_store(at, options));
}

std::string share_text(const Rendezvous& at, const std::string& text_of_rank0) {
  if (at.size == 1) return text_of_rank0;
  return in_contact(at, "could not agree with the other ranks", [&] {
    const auto store = store_at(at);
    if (at.rank > 0) return ask(*store, at);
    answer_all(*store, at, text_of_rank0);
    return text_of_rank0;
  });
}

std::vector<std::string> gather_texts(const Rendezvous& rendezvous, const std::string& own) {
  if (rendezvous.size == 1) return {own};
  Rendezvous at = rendezvous;  // a new word makes it this call's alone
  at.prefix += "/" + share_text(at, new_word());
  Json texts = Json::array();
  in_contact(at, "could not tell the other ranks what this one sees", [&] {
    const auto store = store_at(at);
    store->set("text/" + std::to_string(at.rank), bytes(own));
    for (int rank = 0; at.rank == 0 && rank < at.size; ++rank)
      texts.push_back(text(store->get("text/" + std::to_string(rank))));
    return 0;
  });
  return Json::parse(share_text(at, texts.dump()));
}

}  // namespace bnlab
