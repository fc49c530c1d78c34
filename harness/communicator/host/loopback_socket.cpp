#include "harness/communicator/host/loopback_socket.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "harness/error.hpp"

namespace bnlab {

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
    if (fd_ >= 0) {
      close(fd_);
    }
    throw Error(Error::Kind::environment,
                "cannot listen on " + address + ":" + std::to_string(port) + ": " + reason);
  }
  port_ = ntohs(name.sin_port);
}

LoopbackSocket::~LoopbackSocket() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

int LoopbackSocket::release() {
  return std::exchange(fd_, -1);
}

}  // namespace bnlab
