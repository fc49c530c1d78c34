#include "harness/communicator/loopback_socket.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "harness/error.hpp"

namespace bnlab {

LoopbackSocket::LoopbackSocket() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = 0;  // the kernel picks a free one
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (fd_ < 0 || bind(fd_, generic, size) != 0 || listen(fd_, SOMAXCONN) != 0 ||
      getsockname(fd_, generic, &size) != 0) {
    const std::string reason = strerror(errno);
    if (fd_ >= 0) {
      close(fd_);
    }
    throw Error(Error::Kind::environment, "cannot listen on 127.0.0.1: " + reason);
  }
  port_ = ntohs(address.sin_port);
}

LoopbackSocket::~LoopbackSocket() {
  close(fd_);
}

}  // namespace bnlab
