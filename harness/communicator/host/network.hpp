// What a rank uses of its host's network: a listening socket that no other machine can reach, and the
// address by which other machines reach this one.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

namespace bnlab {

// Whether this is the address of the machine itself, which no other machine can reach.
bool is_loopback(const std::string& address);

// A listening socket on the loopback interface. Rank 0 inherits it, so that no other program can take its
// port between its choice and its use.
class LoopbackSocket {
 public:
  // Listens on an IPv4 address; port 0 lets the kernel pick a free one. Throws Error (environment) if it
  // cannot.
  explicit LoopbackSocket(const std::string& address = "127.0.0.1", int port = 0);
  ~LoopbackSocket();
  LoopbackSocket(const LoopbackSocket&) = delete;
  LoopbackSocket& operator=(const LoopbackSocket&) = delete;

  int fd() const { return fd_; }
  int port() const { return port_; }
  int release();  // the caller closes it

 private:
  int fd_ = -1;
  int port_ = 0;
};

// The sockets that this process opens while one lives are its own: no child that it forks or starts keeps
// them, so that the other ends see this process die although a child lives on.
class OwnSockets {
 public:
  OwnSockets();
  ~OwnSockets();
  OwnSockets(const OwnSockets&) = delete;
  OwnSockets& operator=(const OwnSockets&) = delete;

 private:
  std::map<int, ino_t> before_;
};

// What is wrong with the form of a host's name or address: "" where there may be such a host.
std::string address_problem(const std::string& address);

// "" where somebody listens there now, else why none is found. Takes a second at most, and what a name
// server takes.
std::string why_none_listens(const std::string& address, int port);

// The numeric address from which this machine speaks to `host`, as its routes decide it. The machine's own
// name is no guide: on many systems it stands for 127.0.1.1. Throws Error (environment) where there is no
// such host or route.
std::string address_towards(const std::string& host);

}  // namespace bnlab
