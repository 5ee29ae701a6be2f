//! The router in front of the simulated engines that `llmctl` ships.
