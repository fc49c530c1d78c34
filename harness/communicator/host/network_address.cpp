#include "harness/communicator/host/network_address.hpp"

#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>

#include "harness/error.hpp"

namespace bnlab {
namespace {

constexpr const char* kAnyPort = "9";  // nothing is ever sent there

// The address of a datagram socket that is connected to `peer`, which sends nothing; "" with errno on
// failure.
std::string source_address(const addrinfo& peer) {
  const int fd = socket(peer.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  std::array<char, NI_MAXHOST> text{};
  auto* const generic = reinterpret_cast<sockaddr*>(&own);
  if (fd >= 0 && connect(fd, peer.ai_addr, peer.ai_addrlen) == 0 && getsockname(fd, generic, &size) == 0) {
    getnameinfo(generic, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  }
  const int reason = errno;
  if (fd >= 0) {
    close(fd);
  }
  errno = reason;
  return text.data();
}

}  // namespace

std::string address_towards(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (const int problem = getaddrinfo(host.c_str(), kAnyPort, &wanted, &list); problem != 0) {
    throw Error(Error::Kind::environment,
                "there is no host " + host + " (MASTER_ADDR): " + gai_strerror(problem));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(list, freeaddrinfo);
  for (const addrinfo* peer = list; peer != nullptr; peer = peer->ai_next) {
    if (const std::string address = source_address(*peer); !address.empty()) {
      return address;
    }
  }
  throw Error(Error::Kind::environment,
              "there is no route to " + host + " (MASTER_ADDR): " + std::string(strerror(errno)));
}

}  // namespace bnlab
