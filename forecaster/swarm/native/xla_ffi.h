// XLA's C interface of custom calls, as far as the kernels use it, so that the build needs no headers
// of jaxlib (80 MB).
//
// The structures have the layout of version 0.1 of xla/ffi/api/c_api.h (OpenXLA), the one of jaxlib
// 0.8; those of 0.12 are the same. XLA accepts code for an older version for at least a year, and
// where it refuses this one, the package goes on without compiled code. A test compares the
// structures with the headers of the jaxlib that is installed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <tuple>

namespace ffi {

namespace c {

struct Extension {
  size_t struct_size;
  int32_t type;
  Extension* next;
};
struct Version {
  size_t struct_size;
  Extension* extensions;
  int32_t major, minor;
};
struct Metadata {
  size_t struct_size;
  Version version;
  uint32_t traits;
  int64_t state_type;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};
struct NewError {
  size_t struct_size;
  Extension* extensions;
  const char* message;
  int32_t code;
};
struct Error;  // XLA's own
struct Api {
  size_t struct_size;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*new_error)(NewError*);
};
struct Buffer {
  size_t struct_size;
  Extension* extensions;
  int32_t dtype;
  void* data;
  int64_t rank;
  int64_t* sizes;
};
struct Text {
  const char* at;
  size_t size;
};
struct Scalar {
  int32_t dtype;
  void* value;
};
struct Arrays {  // arguments, or results
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  int32_t* types;
  void** values;
};
struct Attributes {
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  int32_t* types;
  Text** names;
  void** values;
};
struct Frame {
  size_t struct_size;
  Extension* extensions;
  const Api* api;
  void* context;
  int32_t stage;
  Arrays arguments, results;
  Attributes attributes;
};

constexpr int32_t METADATA = 1;                      // type of extension
constexpr int32_t EXECUTE = 3;                       // stage
constexpr int32_t BUFFER = 1, SCALAR = 3, TEXT = 4;  // types of arguments and attributes
constexpr int32_t PRED = 1, U16 = 7, U32 = 8, F32 = 11;

}  // namespace c

enum class Code : int32_t { fine = 0, invalid_argument = 3, failed_precondition = 9 };

struct Error {
  Code code = Code::fine;
  std::string message;
  bool failure() const { return code != Code::fine; }
};

template <class T>
struct Element;
template <>
struct Element<float> { static constexpr int32_t dtype = c::F32; };
template <>
struct Element<uint32_t> { static constexpr int32_t dtype = c::U32; };
template <>
struct Element<uint16_t> { static constexpr int32_t dtype = c::U16; };

template <class T>
class Buffer {
 public:
  explicit Buffer(const c::Buffer* of = nullptr) : of(of) {}
  T* data() const { return static_cast<T*>(of->data); }
  // The size of an axis counted from the end, from 1; 0 if there is none.
  int64_t from_end(int64_t axis) const { return axis <= of->rank ? of->sizes[of->rank - axis] : 0; }
  int64_t size() const {
    int64_t product = 1;
    for (int64_t axis = 0; axis < of->rank; axis++) product *= of->sizes[axis];
    return product;
  }

 private:
  const c::Buffer* of;
};

// A buffer that the call writes.
template <class T>
struct Result : Buffer<T> {
  using Buffer<T>::Buffer;
};

// Reads the values of a call one after another: arguments and results by their order, attributes by
// the names that the handler gives. ``wrong`` tells what does not fit; no value may be used then.
class Reader {
 public:
  Reader(const c::Frame& frame, std::initializer_list<const char*> names)
      : frame(frame), names(names) {}

  template <class T>
  void read(Buffer<T>& into) { into = Buffer<T>(next<T>(frame.arguments, argument, "argument")); }
  template <class T>
  void read(Result<T>& into) { into = Result<T>(next<T>(frame.results, result, "result")); }
  void read(bool& into) {
    const auto* found = static_cast<const c::Scalar*>(named(c::SCALAR));
    if (!found) return;
    if (found->dtype == c::PRED)
      into = *static_cast<const bool*>(found->value);
    else
      wrong = "an attribute is no truth value";
  }
  void read(std::string_view& into) {
    if (const auto* found = static_cast<const c::Text*>(named(c::TEXT))) into = {found->at, found->size};
  }
  void finish() {
    if (!wrong.empty()) return;
    const auto known = static_cast<int64_t>(names.size());
    if (attribute != known || frame.attributes.size != known)
      wrong = "expected " + std::to_string(known) + " attributes, got " +
              std::to_string(frame.attributes.size);
    if (argument != frame.arguments.size || result != frame.results.size)
      wrong = "expected " + std::to_string(argument) + " arguments and " + std::to_string(result) +
              " results, got " + std::to_string(frame.arguments.size) + " and " +
              std::to_string(frame.results.size);
  }
  std::string wrong;

 private:
  template <class T>
  const c::Buffer* next(const c::Arrays& all, int64_t& at, const char* what) {
    static const c::Buffer none = {};
    const int64_t index = at++;
    if (index >= all.size) return &none;
    const auto* buffer = static_cast<const c::Buffer*>(all.values[index]);
    if (all.types[index] == c::BUFFER && buffer->dtype == Element<T>::dtype) return buffer;
    wrong = std::string(what) + " " + std::to_string(index) + " has another type of numbers";
    return &none;
  }
  const void* named(int32_t type) {
    const auto index = static_cast<size_t>(attribute++);
    if (index >= names.size()) return nullptr;  // the handler names too few, which finish() reports
    const char* name = names.begin()[index];
    const c::Attributes& all = frame.attributes;
    for (int64_t i = 0; i < all.size; i++)
      if (std::string_view(all.names[i]->at, all.names[i]->size) == name && all.types[i] == type)
        return all.values[i];
    wrong = std::string("attribute ") + name + " is missing";
    return nullptr;
  }

  const c::Frame& frame;
  std::initializer_list<const char*> names;
  int64_t argument = 0, result = 0, attribute = 0;
};

// Before XLA uses a handler, it asks for the version of the interface that it is written for.
inline bool answered_version(const c::Frame& frame) {
  if (!frame.extensions || frame.extensions->type != c::METADATA) return false;
  c::Metadata& metadata = *reinterpret_cast<c::MetadataExtension*>(frame.extensions)->metadata;
  metadata.version = {sizeof(c::Version), nullptr, 0, 1};
  metadata.traits = 0;
  metadata.state_type = 0;
  return true;
}

template <class... Values>
c::Error* handle(const c::Frame& frame, Error (*function)(Values...),
                 std::initializer_list<const char*> names) {
  if (answered_version(frame)) return nullptr;
  std::tuple<Values...> values;
  Reader reader(frame, names);
  std::apply([&](auto&... each) { (reader.read(each), ...); }, values);
  reader.finish();
  if (frame.stage != c::EXECUTE) reader.wrong = "called at another stage than that of execution";
  const Error error = reader.wrong.empty()
                          ? std::apply(function, values)
                          : Error{Code::invalid_argument, "forecaster's kernel: " + reader.wrong};
  if (!error.failure()) return nullptr;
  c::NewError wanted = {sizeof(c::NewError), nullptr, error.message.c_str(),
                        static_cast<int32_t>(error.code)};
  return frame.api->new_error(&wanted);
}

}  // namespace ffi

// Define the symbol that XLA calls, for a function of buffers, results and named attributes.
#define XLA_CALL(symbol, function, ...) \
  extern "C" ffi::c::Error* symbol(ffi::c::Frame* frame) { return ffi::handle(*frame, function, {__VA_ARGS__}); }
