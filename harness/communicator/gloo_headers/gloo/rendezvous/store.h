// The store through which Gloo's ranks find each other. c10d derives from it, so the virtual functions stand
// in the order that Gloo has them in: the functions of IStore, then the one that Store adds. The tests call
// each of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#define GLOO_STORE_HAS_STORE_V2 1  // c10d then overrides the functions from has_v2_support on

namespace gloo {

class IStore {
 public:
  using Keys = std::vector<std::string>;
  using Value = std::vector<char>;
  virtual ~IStore() = default;
  virtual void set(const std::string& key, const Value& value) = 0;
  virtual Value get(const std::string& key) = 0;
  virtual Value wait_get(const std::string& key, const std::chrono::milliseconds& timeout);
  virtual void wait(const Keys& keys, const std::chrono::milliseconds& timeout) = 0;
  virtual bool has_v2_support() = 0;
  virtual std::vector<Value> multi_get(const Keys& keys) = 0;
  virtual void multi_set(const Keys& keys, const std::vector<Value>& values) = 0;
  virtual void append(const std::string& key, const Value& value) = 0;
  virtual int64_t add(const std::string& key, int64_t value) = 0;
};

namespace rendezvous {

class Store : public IStore {
 public:
  using IStore::wait;
  virtual void wait(const Keys& keys) = 0;
};

}  // namespace rendezvous
}  // namespace gloo
