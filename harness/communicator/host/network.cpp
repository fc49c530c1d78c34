#include "harness/communicator/host/network.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <utility>

#include "harness/support/error.hpp"

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

// Descriptors of this process, with what tells a socket from a later one of the same number. Of other
// threads' sockets their names alone are read, since they may be closed meanwhile.
std::map<int, ino_t> open_sockets() {
  std::map<int, ino_t> sockets;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none)) {
    ino_t inode = 0;
    if (std::sscanf(std::filesystem::read_symlink(entry, none).c_str(), "socket:[%lu]", &inode) == 1)
      sockets[std::atoi(entry.path().filename().c_str())] = inode;
  }
  return sockets;
}

bool is_socket(int fd, ino_t inode) {
  struct stat found{};
  return fstat(fd, &found) == 0 && S_ISSOCK(found.st_mode) && found.st_ino == inode;
}

// Shared by all threads: ranks of one process join the others at the same time.
std::map<int, ino_t> own_sockets;
std::mutex own_sockets_mutex;

void lock_for_fork() {
  own_sockets_mutex.lock();
}

void unlock_after_fork() {
  own_sockets_mutex.unlock();
}

void close_in_child() {
  for (const auto& [fd, inode] : own_sockets)
    if (is_socket(fd, inode)) close(fd);
  unlock_after_fork();
}

}  // namespace

OwnSockets::OwnSockets() : before_(open_sockets()) {}

OwnSockets::~OwnSockets() {
  [[maybe_unused]] static const int once = pthread_atfork(lock_for_fork, unlock_after_fork, close_in_child);
  const std::lock_guard lock(own_sockets_mutex);
  for (const auto& [fd, inode] : open_sockets()) {
    const auto known = before_.find(fd);
    if (known != before_.end() && known->second == inode) continue;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    own_sockets[fd] = inode;
  }
}

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

std::string address_problem(const std::string& address) {
  const auto is_of_a_name = [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '.' || c == '_';
  };
  const auto colons = std::ranges::count(address, ':');
  in6_addr number{};
  const std::string without_zone = address.substr(0, address.find('%'));
  if (colons > 1 && inet_pton(AF_INET6, without_zone.c_str(), &number) == 1) return "";
  const std::string expected = "expected the name or the number of a host, got '" + address + "'";
  if (const size_t scheme = address.find("://"); scheme != std::string::npos)
    return expected + "; leave out " + address.substr(0, scheme + 3);
  if (colons == 1) return expected + "; the port goes to MASTER_PORT";
  const bool is_number = address.find_first_not_of("0123456789.") == std::string::npos;
  const bool is_name = std::ranges::all_of(address, is_of_a_name) && !address.starts_with('-') &&
                       !address.starts_with('.') && address.find("..") == std::string::npos &&
                       address.size() < NI_MAXHOST;
  return is_name && (!is_number || inet_pton(AF_INET, address.c_str(), &number) == 1) ? "" : expected;
}

std::string why_none_listens(const std::string& address, int port) {
  constexpr int kMostMs = 1000;
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int problem = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &wanted, &list))
    return gai_strerror(problem);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(list, freeaddrinfo);
  int reason = ETIMEDOUT;
  for (const addrinfo* peer = list; peer != nullptr && reason != 0; peer = peer->ai_next) {
    const int fd = socket(peer->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    pollfd waited{.fd = fd, .events = POLLOUT, .revents = 0};
    socklen_t size = sizeof reason;
    reason = fd >= 0 && connect(fd, peer->ai_addr, peer->ai_addrlen) == 0 ? 0 : errno;
    if (reason == EINPROGRESS &&
        (poll(&waited, 1, kMostMs) != 1 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &size) != 0))
      reason = ETIMEDOUT;
    if (fd >= 0) close(fd);
  }
  return reason == 0 ? "" : strerror(reason);
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
