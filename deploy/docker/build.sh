#!/bin/sh
# build.sh [OUT]: the four programs, static, and copied to OUT if that is given.
set -eu
# Named although it is this machine's: with a target, the flags hold for the programs and not for the compiler's plug-ins,
# which cannot be static.
target=$(rustc -vV | sed -n 's/^host: //p')
cargo build --profile dist --locked --target "$target" \
  -p router -p bodylog-listener -p bodylog-exporter -p llmctl --bins
[ $# -eq 0 ] && exit
mkdir -p "$1"
for program in router bodylog-listener bodylog-exporter llmctl; do
  cp "target/$target/dist/$program" "$1/"
done
