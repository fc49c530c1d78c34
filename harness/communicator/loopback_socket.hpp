// A listening socket on the loopback interface, on a port that the kernel picks. Rank 0 inherits it, so
// the port cannot be lost to another program between its choice and its use.
#pragma once

namespace bnlab {

class LoopbackSocket {
 public:
  LoopbackSocket();  // throws Error (environment) if there is no loopback to listen on
  ~LoopbackSocket();
  LoopbackSocket(const LoopbackSocket&) = delete;
  LoopbackSocket& operator=(const LoopbackSocket&) = delete;

  int fd() const { return fd_; }
  int port() const { return port_; }

 private:
  int fd_ = -1;
  int port_ = 0;
};

}  // namespace bnlab
