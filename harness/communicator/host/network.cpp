#include "harness/communicator/host/network.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <utility>

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
  if (fd >= 0 && connect(fd, peer.ai_addr, peer.ai_addrlen) == 0 && getsockname(fd, generic, &size) == 0)
    getnameinfo(generic, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  const int reason = errno;
  if (fd >= 0) close(fd);
  errno = reason;
  return text.data();
}

}  // namespace

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

LoopbackSocket::LoopbackSocket(const std::string& address, int port)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof name;
  auto* const generic = reinterpret_cast<sockaddr*>(&name);
  const int yes = 1;  // a port whose last connections are still closing is free
  errno = EAFNOSUPPORT;
  if (inet_pton(AF_INET, address == "localhost" ? "127.0.0.1" : address.c_str(), &name.sin_addr) != 1 ||
      fd_ < 0 || setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      bind(fd_, generic, size) != 0 || listen(fd_, SOMAXCONN) != 0 || getsockname(fd_, generic, &size) != 0) {
    const std::string reason = strerror(errno);
    if (fd_ >= 0) close(fd_);
    throw Error(Error::Kind::environment,
                "cannot listen on " + address + ":" + std::to_string(port) + ": " + reason);
  }
  port_ = ntohs(name.sin_port);
}

LoopbackSocket::~LoopbackSocket() {
  if (fd_ >= 0) close(fd_);
}

int LoopbackSocket::release() {
  return std::exchange(fd_, -1);
}

std::string address_towards(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (const int problem = getaddrinfo(host.c_str(), kAnyPort, &wanted, &list); problem != 0) {
    throw Error(Error::Kind::environment,
                "there is no host " + host + " (MASTER_ADDR): " + gai_strerror(problem));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(list, freeaddrinfo);
  for (const addrinfo* peer = list; peer != nullptr; peer = peer->ai_next)
    if (const std::string address = source_address(*peer); !address.empty()) return address;
  throw Error(Error::Kind::environment,
              "there is no route to " + host + " (MASTER_ADDR): " + std::string(strerror(errno)));
}

}  // namespace bnlab
