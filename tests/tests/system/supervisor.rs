//! Notifications to systemd: ready, reloading with its time and ready again, stopping.

use rustix::process::Signal;
use system_tests::peer::Peer;
use system_tests::wait::within;
use tokio::net::UnixDatagram;

use crate::common::{over, peers};

async fn told(socket: &UnixDatagram) -> String {
    let mut datagram = [0; 4096];
    let length = within("a word to the supervisor", socket.recv(&mut datagram))
        .await
        .unwrap();
    String::from_utf8(datagram[..length].to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn systemd_hears_of_the_start_of_each_reload_and_of_the_end() {
    let peer = Peer::plain().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let router = over(&[&peer], "")
        .env("NOTIFY_SOCKET", path.to_str().unwrap())
        .start()
        .await;
    assert_eq!(told(&socket).await.trim_end(), "READY=1");
    router.replace(
        "routes/r.yaml",
        &format!("{}default_max: 7", peers(&[&peer])),
    );
    router.program.signal(Signal::HUP);
    let reloading = told(&socket).await;
    let since = reloading
        .trim_end()
        .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
        .unwrap_or_else(|| panic!("{reloading:?}"));
    assert!(since.parse::<u64>().unwrap() > 0, "{reloading:?}");
    assert_eq!(told(&socket).await.trim_end(), "READY=1");
    router.program.signal(Signal::TERM);
    // The watcher may have noticed the same change shortly before the signal.
    let mut last = told(&socket).await;
    while last.starts_with("RELOADING=1") || last.starts_with("READY=1") {
        last = told(&socket).await;
    }
    assert_eq!(last.trim_end(), "STOPPING=1");
    assert_eq!(router.program.finish().await.code, Some(0));
}
