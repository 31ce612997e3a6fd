// The calls that are made for every row of a model, as Python functions: ctypes takes a microsecond to
// convert their arguments, a third of what torch.softmax takes altogether on a small tensor. Everything else
// goes by ctypes.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030a0000
#include <Python.h>

#include "regmax.h"

namespace {

// Under so many numbers a call is over before another thread could make use of the interpreter.
constexpr int64_t kQuick = 1 << 14;

// Arguments in order. Pointers are integers, or None; an argument of a wrong type is remembered by Python's
// own error state, which is asked once, at the end.
class Arguments {
 public:
  Arguments(PyObject* const* values, Py_ssize_t count, Py_ssize_t wanted) : next_(values) {
    if (count != wanted) PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", wanted, count);
    complete_ = count == wanted;
  }

  bool complete() const { return complete_; }
  int64_t integer() { return PyLong_AsLongLong(*next_++); }
  double number() { return PyFloat_AsDouble(*next_++); }
  template <class P>
  P* pointer() {
    PyObject* value = *next_++;
    return value == Py_None ? nullptr : static_cast<P*>(PyLong_AsVoidPtr(value));
  }

 private:
  PyObject* const* next_;
  bool complete_;
};

// What every call ends with.
struct Rows {
  int64_t n, d;
  const uint8_t* mask;
  int64_t mask_rows, mask_repeat;
  double theta;
  const double* thetas;
  int32_t threads;

  // Members are initialised in the order in which they are declared, which is that of the arguments.
  explicit Rows(Arguments& in)
      : n{in.integer()},
        d{in.integer()},
        mask{in.pointer<uint8_t>()},
        mask_rows{in.integer()},
        mask_repeat{in.integer()},
        theta{in.number()},
        thetas{in.pointer<double>()},
        threads{static_cast<int32_t>(in.integer())} {}

  // The call's status, unless an argument was wrong.
  template <class Run>
  PyObject* finish(Run run) const {
    if (PyErr_Occurred()) return nullptr;
    int32_t status;
    if (n * d < kQuick) {
      status = run();
    } else {
      Py_BEGIN_ALLOW_THREADS;
      status = run();
      Py_END_ALLOW_THREADS;
    }
    return PyLong_FromLong(status);
  }
};

template <class T, int32_t (*run)(int32_t, const T*, T*, uint64_t*, uint64_t*, int64_t, int64_t,
                                  const uint8_t*, int64_t, int64_t, double, const double*, int32_t)>
PyObject* argmax(PyObject*, PyObject* const* values, Py_ssize_t count) {
  Arguments in(values, count, 13);
  if (!in.complete()) return nullptr;
  const auto kernel = static_cast<int32_t>(in.integer());
  const T* x = in.pointer<T>();
  T* y = in.pointer<T>();
  auto* support = in.pointer<uint64_t>();
  auto* joined = in.pointer<uint64_t>();
  const Rows r(in);
  return r.finish([&] {
    return run(kernel, x, y, support, joined, r.n, r.d, r.mask, r.mask_rows, r.mask_repeat, r.theta, r.thetas,
               r.threads);
  });
}

template <class T, int32_t (*run)(int32_t, const T*, const uint64_t*, const uint64_t*, const T*, T*, int64_t,
                                  int64_t, const uint8_t*, int64_t, int64_t, double, const double*, int32_t)>
PyObject* jacobian_product(PyObject*, PyObject* const* values, Py_ssize_t count) {
  Arguments in(values, count, 14);
  if (!in.complete()) return nullptr;
  const auto kernel = static_cast<int32_t>(in.integer());
  const T* y = in.pointer<T>();
  const auto* support = in.pointer<uint64_t>();
  const auto* joined = in.pointer<uint64_t>();
  const T* v = in.pointer<T>();
  T* out = in.pointer<T>();
  const Rows r(in);
  return r.finish([&] {
    return run(kernel, y, support, joined, v, out, r.n, r.d, r.mask, r.mask_rows, r.mask_repeat, r.theta,
               r.thetas, r.threads);
  });
}

using FastCall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);

PyMethodDef method(const char* name, FastCall function) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL,
          nullptr};
}

PyMethodDef methods[] = {
    method("argmax_f32", argmax<float, regmax_argmax_f32>),
    method("argmax_f64", argmax<double, regmax_argmax_f64>),
    method("jacobian_product_f32", jacobian_product<float, regmax_jacobian_product_f32>),
    method("jacobian_product_f64", jacobian_product<double, regmax_jacobian_product_f64>),
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
