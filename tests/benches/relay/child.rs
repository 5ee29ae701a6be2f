//! The servers under measurement: child processes on core 0, and their usage as reported by the
//! kernel.

use std::net::SocketAddr;
use std::time::Duration;

use procfs::process::Process;
use system_tests::program::Program;
use system_tests::router::Setup;
use tokio::process::Command;

/// The key that the router requires. The floor gets the same header and ignores it.
pub(crate) const KEY: &str = "sk-bench";

/// A server under measurement.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// The part of its paths before `/v1/…`.
    pub(crate) prefix: &'static str,
    process: Process,
    /// Kept for its `Drop`, which ends the process.
    _owner: Box<dyn Send>,
}

impl Target {
    fn new(address: SocketAddr, prefix: &'static str, id: u32, owner: Box<dyn Send>) -> Self {
        let id = i32::try_from(id).expect("process ids are small");
        let process = Process::new(id).expect("our child is in /proc");
        Self {
            address,
            prefix,
            process,
            _owner: owner,
        }
    }

    /// The same process, through another of its routes. It must not outlive this one.
    pub(crate) fn by(&self, prefix: &'static str) -> Self {
        let id = self.process.pid.unsigned_abs();
        Self::new(self.address, prefix, id, Box::new(()))
    }

    /// CPU time so far: user and system, all threads.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = self.process.stat().expect("our child is in /proc");
        let ticks = stat.utime + stat.stime;
        Duration::from_millis(ticks * 1000 / procfs::ticks_per_second())
    }

    /// Resident memory, in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        self.process
            .status()
            .ok()
            .and_then(|status| status.vmrss)
            .unwrap_or_default()
    }
}

/// Starts the floor: this program in its other mode.
pub(crate) async fn floor(upstream: SocketAddr) -> Target {
    let own = std::env::current_exe().expect("the kernel knows our file");
    let mut command = Command::new("taskset");
    command
        .args(["-c", "0"])
        .arg(own)
        .args(["serve-floor", &upstream.to_string()]);
    let program = Program::spawn(command);
    let url = program.line("floor ready http://").await;
    let address = url.parse().expect("the ready line ends with an address");
    Target::new(address, "", program.id(), Box::new(program))
}

/// Starts the router over one peer with room for everything. Its routes are `r` with the defaults,
/// `bare` without any edit of a body, and `edited` with all edits. `main` is added to its main
/// file.
pub(crate) async fn router(upstream: SocketAddr, main: &str) -> Target {
    let peers = format!("peers: [{{address: {upstream}, max_concurrency: 4096}}]\n");
    let setup = Setup::new(env!("CARGO_BIN_EXE_router-under-test"))
        .under("taskset", &["-c", "0"])
        .server("access_log: false")
        .env("RUST_LOG", "warn")
        .keys(&format!("{KEY}:bench\n"))
        .main(main)
        .route("r", &peers)
        .route("bare", &format!("{peers}transparent: true\n"))
        .route("edited", &format!("{peers}postprocess: vllm_format\n"));
    let router = setup.start().await;
    let (address, id) = (router.public, router.program.id());
    Target::new(address, "/r", id, Box::new(router))
}
