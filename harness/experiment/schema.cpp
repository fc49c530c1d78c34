#include "harness/experiment/spec.hpp"

#include <cmath>

#include "harness/components/registry.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

std::string definition_of(const std::string& family, const std::string& name) {
  return "#/$defs/" + family + "." + name;
}

// A name, a name with options, or options that change those of the base spec.
Json component_schema(const std::string& family) {
  const std::vector<std::string> names = registered_names(family);
  Json forms = Json::array();
  forms.push_back({{"enum", names}});
  for (const std::string& name : names) forms.push_back({{"$ref", definition_of(family, name)}});
  forms.push_back({{"type", "object"}, {"not", {{"required", Json::array({"name"})}}}});
  return {{"anyOf", forms}};
}

void add_range(const Parameter& parameter, Json& schema) {
  if (std::isfinite(parameter.lowest))
    schema[parameter.above_lowest ? "exclusiveMinimum" : "minimum"] = parameter.lowest;
  if (std::isfinite(parameter.highest))
    schema[parameter.below_highest ? "exclusiveMaximum" : "maximum"] = parameter.highest;
}

Json object_schema(const std::vector<Parameter>& fields);

Json group_schema(const Parameter& parameter) {
  if (parameter.fields.empty()) return {{"type", "object"}};
  Json schema = object_schema(parameter.fields);
  Json needed = Json::array();
  for (const Parameter& field : parameter.fields)
    if (field.required) needed.push_back(field.name);
  if (parameter.list && !needed.empty())
    schema["required"] = needed;  // a base spec gives no part of a list's entry
  return schema;
}

Json single_schema(const Parameter& parameter) {
  using Kind = Parameter::Kind;
  Json schema;
  switch (parameter.kind) {
    case Kind::integer:
      schema = {{"type", "integer"}};
      break;
    case Kind::number:
      schema = {{"type", "number"}};
      break;
    case Kind::boolean:
      return {{"type", "boolean"}};
    case Kind::text:
      if (!parameter.choices.empty()) return {{"enum", parameter.choices}};
      return parameter.filled && !parameter.list ? Json{{"type", "string"}, {"minLength", 1}}
                                                 : Json{{"type", "string"}};
    case Kind::component:
      return component_schema(parameter.family);
    case Kind::group:
      return group_schema(parameter);
  }
  add_range(parameter, schema);
  return schema;
}

Json list_schema(const Parameter& parameter) {
  Json schema = {{"type", "array"}, {"items", single_schema(parameter)}};
  if (parameter.length > 0) {
    schema["minItems"] = parameter.length;
    schema["maxItems"] = parameter.length;
  } else if (parameter.filled) {
    schema["minItems"] = 1;
  }
  if (!parameter.or_one) return schema;
  Json alone = {{"type", parameter.kind == Parameter::Kind::number ? "number" : "integer"}};
  add_range(parameter, alone);
  return {{"anyOf", Json::array({alone, schema})}};
}

Json value_schema(const Parameter& parameter) {
  Json schema = parameter.list ? list_schema(parameter) : single_schema(parameter);
  if (parameter.nullable) schema = {{"anyOf", Json::array({schema, Json{{"type", "null"}}})}};
  if (!parameter.help.empty()) schema["description"] = parameter.help;
  if (!parameter.required) schema["default"] = parameter.fallback;
  return schema;
}

Json object_schema(const std::vector<Parameter>& fields) {
  Json properties = Json::object();
  for (const Parameter& field : fields) properties[field.name] = value_schema(field);
  return {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
}

}  // namespace

Json spec_schema(const std::vector<std::string>& families) {
  Json definitions = Json::object();
  for (const std::string& family : families) {
    for (const auto& [name, about] : registered(family)) {
      Json schema = object_schema(about.parameters());
      schema["description"] = about.summary;
      schema["properties"]["name"] = {{"const", name}};
      schema["required"] = Json::array({"name"});
      definitions[family + "." + name] = schema;
    }
  }
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "bnlab spec"}};
  schema.update(object_schema(spec_parameters()));
  schema["$defs"] = definitions;
  return schema;
}

}  // namespace bnlab
