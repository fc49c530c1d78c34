// Which operations of LibTorch are work for a device.
#pragma once

#include <ATen/record_function.h>

#include <string_view>

namespace bnlab {

// Views, and memory that is taken and not written.
inline bool launches_nothing(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (name.starts_with("aten::empty") || name.starts_with("aten::is_") ||
      name.starts_with("aten::new_empty") || name == "aten::_unsafe_view" || name == "aten::resize_" ||
      name == "aten::result_type") {
    return true;
  }
  const auto schema = function.operator_schema();
  if (!schema || schema->returns().empty())
    return true;  // no operation of LibTorch's, as a node of the autograd graph
  const auto* alias = schema->returns()[0].alias_info();
  return alias != nullptr && !alias->isWrite();
}

}  // namespace bnlab
