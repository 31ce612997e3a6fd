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
    if (!complete_) PyErr_Format(PyExc_TypeError, "expected %zd to %zd arguments, got %zd", least, most, count);
  }

  bool complete() const { return complete_; }
  bool valid() const { return complete_ && !PyErr_Occurred(); }
  PyObject* object() { return next_ < end_ ? *next_++ : Py_None; }

  // Reads the next argument. None leaves an integer as it is, and is the address nullptr.
  Arguments& operator>>(double& number) {
    number = PyFloat_AsDouble(object());
    return *this;
  }
  Arguments& operator>>(int64_t& number) {
    PyObject* value = object();
    if (value != Py_None) number = PyLong_AsLongLong(value);
    return *this;
  }
  Arguments& operator>>(int32_t& code) {
    int64_t value = 0;
    *this >> value;
    if (value != static_cast<int32_t>(value)) PyErr_SetString(PyExc_OverflowError, "a code needs 32 bits");
    code = static_cast<int32_t>(value);
    return *this;
  }
  template <class P>
  Arguments& operator>>(P*& address) {
    PyObject* value = object();
    address = value == Py_None ? nullptr : static_cast<P*>(PyLong_AsVoidPtr(value));
    return *this;
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
  rows.mask_rows = rows.mask_repeat = 1;
  in >> rows.n >> rows.d >> rows.theta >> rows.gamma >> rows.threads >> rows.support >> rows.joined;
  in >> rows.mask >> rows.mask_rows >> rows.mask_repeat >> rows.thetas >> rows.gammas >> rows.kept;
}

PyObject* argmax(PyObject*, PyObject* const* values, Py_ssize_t count) {
  Arguments in(values, count, 9, 23);
  if (!in.complete()) return nullptr;
  regmax_rows rows{};
  in >> rows.dtype >> rows.kernel >> rows.x >> rows.y;
  read_mapping(in, rows);
  in >> rows.theta_grad >> rows.gamma_grad >> rows.y32 >> rows.value >> rows.read_again >> rows.listed;
  return finish_rows(in, rows, regmax_argmax);
}

PyObject* jacobian_product(PyObject*, PyObject* const* values, Py_ssize_t count) {
  Arguments in(values, count, 10, 22);
  if (!in.complete()) return nullptr;
  regmax_rows rows{};
  in >> rows.dtype >> rows.kernel >> rows.y >> rows.v >> rows.out;
  read_mapping(in, rows);
  in >> rows.theta_grad >> rows.gamma_grad >> rows.y32 >> rows.listed;
  return finish_rows(in, rows, regmax_jacobian_product);
}

PyObject* prox_owl(PyObject*, PyObject* const* values, Py_ssize_t count) {
  Arguments in(values, count, 7, 7);
  if (!in.complete()) return nullptr;
  regmax_rows rows{};
  in >> rows.dtype >> rows.x >> rows.y >> rows.n >> rows.d >> rows.weights >> rows.threads;
  return finish_rows(in, rows, regmax_prox_owl);
}

// What both passes of attention begin with.
constexpr Py_ssize_t kAttention = 35;

regmax_attention read_attention(Arguments& in) {
  regmax_attention call{};
  int64_t seed = 0;
  in >> call.dtype >> call.kernel >> call.theta >> call.gamma >> call.scale >> call.is_causal;
  in >> call.thetas >> call.theta_rows >> call.gammas >> call.gamma_rows;
  in >> call.heads >> call.groups >> call.queries >> call.keys >> call.e >> call.e_v >> call.q >> call.k >> call.v;
  in >> call.strides >> call.batch_heads;
  in >> call.mask >> call.mask_slices >> call.mask_rows >> call.bias >> call.bias_slices >> call.bias_rows;
  in >> call.dropout_p >> seed >> call.recompute >> call.threads;
  in >> call.screen >> call.screen_scales >> call.screen_bounds >> call.screen_stride;
  call.seed = static_cast<uint64_t>(seed);
  return call;
}

regmax_weights* weights_of(PyObject* capsule) {
  return static_cast<regmax_weights*>(PyCapsule_GetPointer(capsule, kWeights));
}

// The capsule owns the weights: whatever happens between the passes, they are freed with it.
void free_weights(PyObject* capsule) { regmax_attention_free(weights_of(capsule)); }

PyObject* attention_forward(PyObject*, PyObject* const* values, Py_ssize_t count) {
  Arguments in(values, count, kAttention + 3, kAttention + 3);
  if (!in.complete()) return nullptr;
  regmax_attention call = read_attention(in);
  const bool keep = (in >> call.out >> call.dense).object() == Py_True;
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
  Arguments in(values, count, 6, 6);
  if (!in.complete()) return nullptr;
  regmax_weights* weights = weights_of(in.object());
  int64_t capacity = 0, *starts;
  int32_t* columns;
  void* numbers;
  uint8_t* joined;
  in >> capacity >> starts >> columns >> numbers >> joined;
  if (!in.valid()) return nullptr;
  return none_if(succeeded(
      without_gil([&] { return regmax_attention_take(weights, capacity, starts, columns, numbers, joined); })));
}

PyObject* attention_backward(PyObject*, PyObject* const* values, Py_ssize_t count) {
  Arguments in(values, count, kAttention + 12, kAttention + 12);
  if (!in.complete()) return nullptr;
  regmax_attention call = read_attention(in);
  in >> call.starts >> call.columns >> call.values >> call.joined;
  in >> call.out_grad >> call.dense_grad >> call.q_grad >> call.k_grad >> call.v_grad;
  in >> call.bias_grad >> call.theta_grad >> call.gamma_grad;
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

PyObject* quantise(PyObject*, PyObject* const* values, Py_ssize_t count) {
  Arguments in(values, count, 7, 7);
  if (!in.complete()) return nullptr;
  int64_t rows = 0, e = 0;
  const float* x;
  int8_t* integers;
  float *scales, *errors, *norms;
  in >> x >> rows >> e >> integers >> scales >> errors >> norms;
  if (!in.valid()) return nullptr;
  return none_if(succeeded(without_gil([&] { return regmax_quantise(x, rows, e, integers, scales, errors, norms); })));
}

PyObject* int8(PyObject*, PyObject*) { return PyBool_FromLong(regmax_int8()); }

PyObject* use_int8(PyObject*, PyObject* on) {
  regmax_use_int8(on == Py_True);
  Py_RETURN_NONE;
}

PyObject* screen_counts(PyObject*, PyObject* reset) {
  int64_t counts[4];
  regmax_screen_counts(counts, reset == Py_True);
  return Py_BuildValue("LLLL", static_cast<long long>(counts[0]), static_cast<long long>(counts[1]),
                       static_cast<long long>(counts[2]), static_cast<long long>(counts[3]));
}

PyObject* abi_version(PyObject*, PyObject*) { return PyLong_FromLong(regmax_abi_version()); }

using FastCall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);

PyMethodDef fast(const char* name, FastCall function) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL, nullptr};
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
    fast("quantise", quantise),
    {"int8", int8, METH_NOARGS, nullptr},
    {"use_int8", use_int8, METH_O, nullptr},
    {"screen_counts", screen_counts, METH_O, nullptr},
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
