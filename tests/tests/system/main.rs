//! The promises of the interface contract, checked against the real programs over real sockets.
