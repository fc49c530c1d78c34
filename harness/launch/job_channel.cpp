#include "harness/launch/job_channel.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <utility>

#include "harness/support/error.hpp"

namespace bnlab {
namespace {

std::optional<std::string> received(int fd, int flags) {
  std::string message(PATH_MAX, '\0');
  ssize_t size = -1;
  do {
    size = recv(fd, message.data(), message.size(), flags);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
  message.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return message;
}

}  // namespace

JobChannel::JobChannel(JobChannel&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

JobChannel& JobChannel::operator=(JobChannel&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

JobChannel::Ends JobChannel::make() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(Error::Kind::environment, std::string("cannot make a pair of sockets: ") + strerror(errno));
  return {JobChannel(ends[0]), JobChannel(ends[1])};
}

JobChannel JobChannel::from_environment() {
  const char* fd = std::getenv(kJobChannel);
  if (fd == nullptr) return {};
  JobChannel channel(std::atoi(fd));
  fcntl(channel.fd(), F_SETFD, FD_CLOEXEC);
  return channel;
}

void JobChannel::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void JobChannel::send(const std::string& message) const {
  while (::send(fd_, message.data(), message.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

std::string JobChannel::wait() const {
  return received(fd_, 0).value_or("");
}

std::optional<std::string> JobChannel::look() const {
  return received(fd_, MSG_DONTWAIT);
}

}  // namespace bnlab
