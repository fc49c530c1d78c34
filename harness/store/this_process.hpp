// Which process on which machine this is, so that its files can be told from those of any other one.
#pragma once

#include <string>

namespace bnlab {

// A word that no other process has, on this machine or another one: "4711-9f3c21aa0b5e77d1".
std::string this_process();

std::string this_host();
// The machine since it was last started, and the space of process ids: where two processes say the same,
// their ids mean the same.
std::string this_machine();

// When a process of this machine started; "" if there is none with this id. With it the id is never taken for
// that of a later process.
std::string process_start(long process);

}  // namespace bnlab
