// The C interface as a Python module of the stable ABI: `regmax._core`, typed in src/regmax/_core.pyi.
// Arrays are addresses, integers or None. Functions raise what a status says, and return None otherwise.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030a0000
#include <Python.h>

#include "regmax.h"

namespace {

// A call on fewer numbers is over before another thread could make use of the interpreter.
constexpr int64_t kQuick = 1 << 14;
constexpr const char* kWeights = "regmax._core.weights";

// Arguments in order. Missing ones at the end read as None. A wrong type is recorded in Python's error state,
// which is checked once, before the call.
class Arguments {
 public:
  Arguments(PyObject* const* values, Py_ssize_t count, Py_ssize_t least, Py_ssize_t most)
      : next_(values), end_(values + count), complete_(least <= count && count <= most) {
    if (!complete_)
      PyErr_Format(PyExc_TypeError, "expected %zd to %zd arguments, got %zd", least, most, count);
  }

  bool complete() const { return complete_; }
  bool valid() const { return complete_ && !PyErr_Occurred(); }
  PyObject* object() { return next_ < end_ ? *next_++ : Py_None; }
  double number() { return PyFloat_AsDouble(object()); }
  int64_t integer() { return PyLong_AsLongLong(object()); }

  int64_t integer_or(int64_t missing) {
    PyObject* value = object();
    return value == Py_None ? missing : PyLong_AsLongLong(value);
  }

  int32_t code() {
    const int64_t value = integer();
    if (value != static_cast<int32_t>(value)) PyErr_SetString(PyExc_OverflowError, "a code needs 32 bits");
    return static_cast<int32_t>(value);
  }

  template <class P = void>
  P* pointer() {
    PyObject* value = object();
    return value == Py_None ? nullptr : static_cast<P*>(PyLong_AsVoidPtr(value));
  }

 private:
  PyObject* const* next_;
  PyObject* const* end_;
  bool complete_;
};

bool succeeded(int32_t status) {
  if (status == REGMAX_OK) return true;
  if (status == REGMAX_OUT_OF_MEMORY) {
    PyErr_NoMemory();
  } else {
    PyErr_SetString(PyExc_ValueError,
                    "`regmax._core` needs a known kernel and type, sizes and strengths in range, and every "
                    "array. Got others: see csrc/regmax.h.");
  }
  return false;
}

template <class Run>
int32_t without_gil(Run run) {
  int32_t status;
  Py_BEGIN_ALLOW_THREADS;
  status = run();
  Py_END_ALLOW_THREADS;
  return status;
}

PyObject* none_if(bool ok) {
  if (!ok) return nullptr;
  Py_RETURN_NONE;
}

PyObject* finish_rows(const Arguments& in, const regmax_rows& rows, int32_t (*run)(const regmax_rows*)) {
  if (!in.valid()) return nullptr;
  const bool quick = rows.n * rows.d < kQuick;
  return none_if(succeeded(quick ? run(&rows) : without_gil([&] { return run(&rows); })));
}

// What both calls on mappings end with.
void read_mapping(Arguments& in, regmax_rows& rows) {
  rows.n = in.integer();
  rows.d = in.integer();
  rows.theta = in.number();
  rows.gamma = in.number();
  rows.threads = in.code();
  rows.support = in.pointer<uint64_t>();
  rows.joined = in.pointer<uint64_t>();
  rows.mask = in.pointer<uint8_t>();
  rows.mask_rows = in.integer_or(1);
  rows.mask_repeat = in.integer_or(1);
  rows.thetas = in.pointer<double>();
  rows.gammas = in.pointer<double>();
}

PyObject* argmax(PyObject*, PyObject* const* values, Py_ssize_t count) {
  Arguments in(values, count, 9, 16);
  if (!in.complete()) return nullptr;
  regmax_rows rows{};
  rows.dtype = in.code();
  rows.kernel = in.code();
  rows.x = in.pointer();
  rows.y = in.pointer();
  read_mapping(in, rows);
  return finish_rows(in, rows, regmax_argmax);
}

PyObject* jacobian_product(PyObject*, PyObject* const* values, Py_ssize_t count) {
  Arguments in(values, count, 10, 17);
  if (!in.complete()) return nullptr;
  regmax_rows rows{};
  rows.dtype = in.code();
  rows.kernel = in.code();
  rows.y = in.pointer();
  rows.v = in.pointer();
  rows.out = in.pointer();
  read_mapping(in, rows);
  return finish_rows(in, rows, regmax_jacobian_product);
}

PyObject* prox_owl(PyObject*, PyObject* const* values, Py_ssize_t count) {
  Arguments in(values, count, 7, 7);
  if (!in.complete()) return nullptr;
  regmax_rows rows{};
  rows.dtype = in.code();
  rows.x = in.pointer();
  rows.y = in.pointer();
  rows.n = in.integer();
  rows.d = in.integer();
  rows.weights = in.pointer<double>();
  rows.threads = in.code();
  return finish_rows(in, rows, regmax_prox_owl);
}

// What both passes of attention begin with.
constexpr Py_ssize_t kAttention = 24;

regmax_attention read_attention(Arguments& in) {
  regmax_attention call{};
  call.dtype = in.code();
  call.kernel = in.code();
  call.theta = in.number();
  call.scale = in.number();
  call.is_causal = in.code();
  call.heads = in.integer();
  call.groups = in.integer();
  call.queries = in.integer();
  call.keys = in.integer();
  call.e = in.integer();
  call.e_v = in.integer();
  call.q = in.pointer();
  call.k = in.pointer();
  call.v = in.pointer();
  call.mask = in.pointer<uint8_t>();
  call.mask_slices = in.pointer<int64_t>();
  call.mask_rows = in.integer();
  call.bias = in.pointer();
  call.bias_slices = in.pointer<int64_t>();
  call.bias_rows = in.integer();
  call.dropout_p = in.number();
  call.seed = static_cast<uint64_t>(in.integer());
  call.recompute = in.code();
  call.threads = in.code();
  return call;
}

regmax_weights* weights_of(PyObject* capsule) {
  return static_cast<regmax_weights*>(PyCapsule_GetPointer(capsule, kWeights));
}

// The capsule owns the weights: whatever happens between the passes, they are freed with it.
void free_weights(PyObject* capsule) { regmax_attention_free(weights_of(capsule)); }

PyObject* attention_forward(PyObject*, PyObject* const* values, Py_ssize_t count) {
  Arguments in(values, count, kAttention + 2, kAttention + 2);
  if (!in.complete()) return nullptr;
  regmax_attention call = read_attention(in);
  call.out = in.pointer();
  const bool keep = in.object() == Py_True;
  if (!in.valid()) return nullptr;
  regmax_weights* weights = nullptr;
  if (!succeeded(without_gil([&] { return regmax_attention_forward(&call, keep ? &weights : nullptr); })))
    return nullptr;
  if (!weights) Py_RETURN_NONE;
  PyObject* capsule = PyCapsule_New(weights, kWeights, free_weights);
  if (!capsule) regmax_attention_free(weights);
  return capsule;
}

PyObject* attention_size(PyObject*, PyObject* capsule) {
  const regmax_weights* weights = weights_of(capsule);
  return weights ? PyLong_FromLongLong(regmax_attention_size(weights)) : nullptr;
}

PyObject* attention_take(PyObject*, PyObject* const* values, Py_ssize_t count) {
  Arguments in(values, count, 5, 5);
  if (!in.complete()) return nullptr;
  regmax_weights* weights = weights_of(in.object());
  auto* starts = in.pointer<int64_t>();
  auto* columns = in.pointer<int32_t>();
  void* numbers = in.pointer();
  auto* joined = in.pointer<uint8_t>();
  if (!in.valid()) return nullptr;
  return none_if(succeeded(
      without_gil([&] { return regmax_attention_take(weights, starts, columns, numbers, joined); })));
}

PyObject* attention_backward(PyObject*, PyObject* const* values, Py_ssize_t count) {
  Arguments in(values, count, kAttention + 8, kAttention + 8);
  if (!in.complete()) return nullptr;
  regmax_attention call = read_attention(in);
  call.starts = in.pointer<int64_t>();
  call.columns = in.pointer<int32_t>();
  call.values = in.pointer();
  call.joined = in.pointer<uint8_t>();
  call.out_grad = in.pointer();
  call.q_grad = in.pointer();
  call.k_grad = in.pointer();
  call.v_grad = in.pointer();
  if (!in.valid()) return nullptr;
  return none_if(succeeded(without_gil([&] { return regmax_attention_backward(&call); })));
}

PyObject* instruction_set(PyObject*, PyObject*) { return PyUnicode_FromString(regmax_instruction_set()); }

// Calls a C function with a name, or NULL for None; returns whether it knew the name.
template <int32_t (*choose)(const char*)>
PyObject* choose_by_name(PyObject*, PyObject* name) {
  PyObject* text = name == Py_None ? nullptr : PyUnicode_AsUTF8String(name);
  if (!text && name != Py_None) return nullptr;
  const bool found = choose(text ? PyBytes_AsString(text) : nullptr) == REGMAX_OK;
  Py_XDECREF(text);
  return PyBool_FromLong(found);
}

PyObject* borrow_threads(PyObject*, PyObject* address) {
  using ForkJoin = void (*)(void (*)(void*), void*, unsigned, unsigned);
  void* const gomp_parallel = address == Py_None ? nullptr : PyLong_AsVoidPtr(address);
  if (PyErr_Occurred()) return nullptr;
  regmax_borrow_threads(reinterpret_cast<ForkJoin>(gomp_parallel));
  Py_RETURN_NONE;
}

PyObject* abi_version(PyObject*, PyObject*) { return PyLong_FromLong(regmax_abi_version()); }

using FastCall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);

PyMethodDef fast(const char* name, FastCall function) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL,
          nullptr};
}

PyMethodDef methods[] = {
    fast("argmax", argmax),
    fast("jacobian_product", jacobian_product),
    fast("prox_owl", prox_owl),
    fast("attention_forward", attention_forward),
    fast("attention_take", attention_take),
    fast("attention_backward", attention_backward),
    {"attention_size", attention_size, METH_O, nullptr},
    {"instruction_set", instruction_set, METH_NOARGS, nullptr},
    {"use_instruction_set", choose_by_name<regmax_use_instruction_set>, METH_O, nullptr},
    {"force_tier", choose_by_name<regmax_force_tier>, METH_O, nullptr},
    {"borrow_threads", borrow_threads, METH_O, nullptr},
    {"abi_version", abi_version, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef_Slot slots[] = {{0, nullptr}};

PyModuleDef module = {PyModuleDef_HEAD_INIT,
                      "regmax._core",
                      "The native core (csrc/regmax.h).",
                      0,
                      methods,
                      slots,
                      nullptr,
                      nullptr,
                      nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__core() { return PyModuleDef_Init(&module); }
