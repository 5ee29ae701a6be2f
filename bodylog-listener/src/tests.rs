//! Runs a whole listener in this process, with real sockets and files. The tests control its clock
//! and its disk.

mod disk;
mod files;
mod harness;
mod http;
mod port;
mod stored;
mod tls;
mod v1;
