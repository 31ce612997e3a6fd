#!/bin/sh
# Compile and link the core for another system: `tools/cross.sh x86_64-windows-gnu`. ZIG is the command of Zig's compiler.
set -eu
target=$1
out=build/cross/$target
mkdir -p "$out"
compile() { # the object's name, then arguments
  object=$out/$1.o
  shift
  # -O1 shows what the compilers of other systems accept, in less time than -O3.
  ${ZIG:-zig c++} -target "$target" -std=c++17 -O1 -Wall -Wextra -ffp-contract=off -fno-math-errno -fvisibility=hidden -Icsrc -c "$@" -o "$object"
}

x86=
avx="-mfma -mbmi -mbmi2 -mpopcnt"
case $target in
x86_64-*)
  x86=-DREGMAX_X86
  # shellcheck disable=SC2086
  compile avx2 csrc/kernels.cpp -DREGMAX_ISA=avx2 -mavx2 $avx
  # shellcheck disable=SC2086
  compile avx512 csrc/kernels.cpp -DREGMAX_ISA=avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl $avx
  ;;
esac
compile baseline csrc/kernels.cpp -DREGMAX_ISA=baseline
compile threads csrc/runtime/threads.cpp
compile int8 csrc/runtime/int8.cpp
compile tiers csrc/runtime/tiers.cpp
# shellcheck disable=SC2086
compile api csrc/api.cpp $x86
${ZIG:-zig c++} -target "$target" -shared -o "$out/core" "$out"/*.o
echo "$target: compiled and linked"
