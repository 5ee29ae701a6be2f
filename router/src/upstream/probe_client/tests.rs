use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::*;
use service::tls::install_crypto_provider;

/// Long enough for any connection.
const SOON: Duration = Duration::from_secs(1);

/// What a server does with each request of a connection, and then with the connection itself.
#[derive(Clone, Copy)]
enum Then {
    /// Answers and waits for the next request.
    Stay(&'static str),
    /// Answers and closes, without announcing it.
    Close(&'static str),
    /// Closes and does not answer.
    Vanish,
    /// Answers the first request and closes at the second.
    VanishLater(&'static str),
}

struct Server {
    place: Endpoint,
    connections: Arc<AtomicUsize>,
    /// Connections whose end the server saw.
    ended: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

impl Server {
    async fn spawn(then: Then) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let counts = (Arc::clone(&connections), Arc::clone(&ended));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut all = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counts.0.fetch_add(1, Ordering::SeqCst);
                let ended = Arc::clone(&counts.1);
                all.spawn(async move {
                    serve(stream, then).await;
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self {
            place: place(&format!("http://{address}/page?a=b")),
            connections,
            ended,
            _serving: serving,
        }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    async fn until_ended(&self, connections: usize) {
        let ended = async {
            while self.ended.load(Ordering::SeqCst) < connections {
                tokio::task::yield_now().await;
            }
        };
        ended.await;
    }
}

async fn serve(mut stream: TcpStream, then: Then) {
    for n in 0.. {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let (answer, stays) = match then {
            Then::Stay(answer) => (answer, true),
            Then::Close(answer) => (answer, false),
            Then::VanishLater(answer) if n == 0 => (answer, true),
            Then::VanishLater(_) | Then::Vanish => return,
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
        if !stays {
            return;
        }
    }
}

const SHORT: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";

fn asker() -> ProbeClient {
    install_crypto_provider();
    ProbeClient::new()
}

fn place(uri: &str) -> Endpoint {
    Endpoint::new(uri.parse().unwrap(), None)
}

fn soon(place: &Endpoint) -> Question<'_> {
    Question {
        place,
        next_within: SOON,
    }
}

async fn get(
    asker: &ProbeClient,
    line: &KeptConnection,
    question: Question<'_>,
) -> Result<String, AskError> {
    let answer = asker.ask(line, question, &AtomicBool::default()).await?;
    let mut page = Vec::new();
    answer
        .read(100, |chunk| page.extend_from_slice(chunk))
        .await?;
    Ok(String::from_utf8(page).unwrap())
}

#[tokio::test]
async fn the_next_question_goes_over_the_same_connection() {
    let (asker, line) = (asker(), KeptConnection::default());
    for answer in [SHORT, CHUNKED] {
        let server = Server::spawn(Then::Stay(answer)).await;
        for _ in 0..3 {
            assert_eq!(
                get(&asker, &line, soon(&server.place)).await.unwrap(),
                "hello"
            );
        }
        assert_eq!(server.connections(), 1, "{answer}");
    }
}

#[tokio::test]
async fn a_kept_connection_that_died_is_no_failure() {
    let (asker, line) = (asker(), KeptConnection::default());
    for then in [Then::Close(SHORT), Then::VanishLater(SHORT)] {
        let server = Server::spawn(then).await;
        for _ in 0..3 {
            assert_eq!(
                get(&asker, &line, soon(&server.place)).await.unwrap(),
                "hello"
            );
        }
        assert!(server.connections() > 1);
    }
}

#[tokio::test]
async fn a_new_connection_that_dies_is_a_failure_at_once() {
    let (asker, line) = (asker(), KeptConnection::default());
    let server = Server::spawn(Then::Vanish).await;
    let error = get(&asker, &line, soon(&server.place)).await.unwrap_err();
    assert!(matches!(error, AskError::Broken(_)), "{error}");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn nobody_there_is_told_apart_from_a_broken_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = place(&format!("http://{}/", listener.local_addr().unwrap()));
    drop(listener);
    let connected = AtomicBool::default();
    let (asker, line) = (asker(), KeptConnection::default());
    let error = asker.ask(&line, soon(&place), &connected);
    let error = error.await.unwrap_err();
    assert!(matches!(error, AskError::Connect(_)), "{error}");
    assert!(!connected.into_inner());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_the_engine_may_be_closing_is_not_used() {
    let (asker, line) = (asker(), KeptConnection::default());
    let server = Server::spawn(Then::Stay(SHORT)).await;
    for pause in [Duration::ZERO, SOON, KEEP_IDLE] {
        tokio::time::advance(pause).await;
        get(&asker, &line, soon(&server.place)).await.unwrap();
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn no_connection_is_kept_for_a_question_that_comes_late() {
    let (asker, line) = (asker(), KeptConnection::default());
    let server = Server::spawn(Then::Stay(SHORT)).await;
    let late = Question {
        next_within: KEEP_IDLE,
        ..soon(&server.place)
    };
    for asked in 1..=2 {
        get(&asker, &line, late).await.unwrap();
        server.until_ended(asked).await;
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_connection_to_another_place_is_not_used() {
    let (asker, line) = (asker(), KeptConnection::default());
    let servers = [
        Server::spawn(Then::Stay(SHORT)).await,
        Server::spawn(Then::Stay(SHORT)).await,
    ];
    for server in [&servers[0], &servers[1], &servers[0]] {
        get(&asker, &line, soon(&server.place)).await.unwrap();
    }
    assert_eq!([servers[0].connections(), servers[1].connections()], [2, 1]);
}

#[tokio::test]
async fn questions_that_meet_have_a_connection_each() {
    let (asker, line) = (asker(), KeptConnection::default());
    let server = Server::spawn(Then::Stay(SHORT)).await;
    let connected = AtomicBool::default();
    let first = asker
        .ask(&line, soon(&server.place), &connected)
        .await
        .unwrap();
    assert_eq!(
        get(&asker, &line, soon(&server.place)).await.unwrap(),
        "hello"
    );
    first.leave();
    assert_eq!(
        get(&asker, &line, soon(&server.place)).await.unwrap(),
        "hello"
    );
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_redirect_is_the_answer() {
    let (asker, line) = (asker(), KeptConnection::default());
    let away = "HTTP/1.1 307 Away\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
    let server = Server::spawn(Then::Stay(away)).await;
    let connected = AtomicBool::default();
    let answer = asker
        .ask(&line, soon(&server.place), &connected)
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::TEMPORARY_REDIRECT);
}

#[tokio::test]
async fn what_is_too_long_is_given_up_with_its_connection() {
    let (asker, line) = (asker(), KeptConnection::default());
    for answer in [SHORT, CHUNKED] {
        let server = Server::spawn(Then::Stay(answer)).await;
        for (max, read) in [(4, Read::TooLong), (5, Read::Whole)] {
            let connected = AtomicBool::default();
            let answer = asker
                .ask(&line, soon(&server.place), &connected)
                .await
                .unwrap();
            let mut taken = 0;
            let ended = answer
                .read(max, |chunk| taken += chunk.len())
                .await
                .unwrap();
            assert_eq!(ended, read);
            assert!(taken <= max);
        }
        server.until_ended(1).await;
        assert_eq!(server.connections(), 2);
    }
}

#[tokio::test]
async fn an_answer_that_is_left_keeps_its_connection_only_if_it_is_all_there() {
    let (asker, line) = (asker(), KeptConnection::default());
    let endless = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello";
    for (answer, connections) in [(SHORT, 1), (endless, 2)] {
        let server = Server::spawn(Then::Stay(answer)).await;
        for _ in 0..2 {
            let connected = AtomicBool::default();
            let answer = asker.ask(&line, soon(&server.place), &connected);
            answer.await.unwrap().leave();
        }
        assert_eq!(server.connections(), connections);
    }
}

#[tokio::test]
async fn bytes_that_nobody_asked_for_are_no_answer() {
    let (asker, line) = (asker(), KeptConnection::default());
    let server = Server::spawn(Then::Stay(
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhelloHTTP/1.1 500 Oops\r\n\r\n",
    ))
    .await;
    for _ in 0..2 {
        assert_eq!(
            get(&asker, &line, soon(&server.place)).await.unwrap(),
            "hello"
        );
    }
    assert_eq!(server.connections(), 2);
}
