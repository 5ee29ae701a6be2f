#!/bin/sh
# Creates empty sources beside every Cargo.toml below the current directory, for the targets that it names. That is
# enough for cargo to build only the dependencies. Existing files are left alone.
set -eu
find . -name Cargo.toml | while read -r manifest; do
  grep -q '^\[package\]' "$manifest" || continue
  dir=$(dirname "$manifest")
  {
    echo src/lib.rs
    awk '
      function flush() {
        if (kind != "") print path != "" ? path : (kind == "bin" ? "src/bin/" : kind == "bench" ? "benches/" : kind "s/") name ".rs"
        kind = name = path = ""
      }
      /^\[/ { flush() }
      /^\[\[(bin|bench|test|example)\]\]/ { kind = $0; gsub(/[][]/, "", kind) }
      kind != "" && /^(name|path) *=/ { value = $0; gsub(/^[^"]*"|".*$/, "", value); if (/^name/) name = value; else path = value }
      END { flush() }' "$manifest"
  } | while read -r source; do
    mkdir -p "$dir/$(dirname "$source")"
    [ -e "$dir/$source" ] || case $source in
      */lib.rs) : >"$dir/$source" ;;
      *) echo 'fn main() {}' >"$dir/$source" ;;
    esac
  done
done
