#!/bin/sh
# build.sh [OUT]: builds the four programs as static binaries and copies them to OUT if that is given.
set -eu
# The target is named although it is that of this machine. With a target, the flags apply only to the programs and not
# to the compiler's plug-ins, which cannot be static.
target=$(rustc -vV | sed -n 's/^host: //p')
# Kernels for ARM may have pages of 64 KiB, and jemalloc ends a program whose pages are larger than it was built for.
case "$target" in aarch64-*) export JEMALLOC_SYS_WITH_LG_PAGE=16 ;; esac
cargo build --profile dist --locked --target "$target" \
  -p router -p bodylog-listener -p bodylog-exporter -p llmctl --bins
[ $# -eq 0 ] && exit
mkdir -p "$1"
for program in router bodylog-listener bodylog-exporter llmctl; do
  cp "target/$target/dist/$program" "$1/"
done
