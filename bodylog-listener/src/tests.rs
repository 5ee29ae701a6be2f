//! A whole listener in this process: real sockets, real files, a clock and a disk that can be told
//! what to do.

mod disk;
mod files;
mod harness;
mod http;
mod port;
mod stored;
mod tls;
mod v1;
