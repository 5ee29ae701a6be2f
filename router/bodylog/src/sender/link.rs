//! One connection to the listener, from its socket to the receiver's WELCOME.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use proto::codec::{self, Codec, DecodeError, Decoded, Fault};
use proto::control::{GoAwayCode, Hello, Welcome};
use proto::frame::{Compression, Frame, MAX_PAYLOAD, VERSION};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::codec::FramedRead;

use super::Shared;
use super::tls::{self, TlsError};
use crate::settings::Target;
use crate::spool::Identity;

/// Longest time from the first attempt to the WELCOME.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest token file, bytes. A real token is one line.
const TOKEN_MAX: u64 = 4096;

/// The reason there is no connection, or it ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("reach it")]
    Io(#[source] io::Error),
    #[error("get a welcome within {OPEN_TIMEOUT:?}")]
    Timeout,
    #[error("keep it: it closed the connection")]
    Closed,
    #[error("hear from it: it is silent")]
    Silent,
    #[error("understand it")]
    Decode(#[source] DecodeError),
    #[error("understand it: {}", .0.as_str())]
    Bad(Fault),
    #[error("understand it: a frame is out of place")]
    OutOfPlace,
    #[error("speak its protocol, version {0}")]
    Version(u8),
    #[error("be served: {0:?} {1}")]
    Refused(GoAwayCode, String),
    #[error("read the token file")]
    Token(#[source] io::Error),
    #[error(transparent)]
    Tls(TlsError),
}

impl LinkError {
    /// Whether an immediate retry is unlikely to help.
    pub(super) fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::Version(_)
                | Self::Token(_)
                | Self::Tls(_)
                | Self::Refused(
                    GoAwayCode::Auth | GoAwayCode::Protocol | GoAwayCode::Busy,
                    _
                )
        )
    }
}

type Halves = (
    Box<dyn AsyncRead + Send + Unpin>,
    Box<dyn AsyncWrite + Send + Unpin>,
);

/// The frames from the receiver, with or without TLS.
pub(super) type FromReceiver = FramedRead<Box<dyn AsyncRead + Send + Unpin>, Codec>;

/// An open connection.
pub(super) struct Link {
    pub read: FromReceiver,
    /// Needs a flush: TLS holds the bytes that the socket did not accept.
    pub write: Box<dyn AsyncWrite + Send + Unpin>,
    /// The receiver has everything up to this sequence.
    pub last_durable: u64,
    pub window_bytes: u64,
    pub window_frames: usize,
}

impl Link {
    /// Connects and introduces this process with its epoch and the lowest sequence it still has.
    /// Dropping the future closes the connection.
    pub(super) async fn open(
        target: &Target,
        identity: Identity,
        next_seq: u64,
        shared: &Shared,
    ) -> Result<Self, LinkError> {
        let opened = tokio::time::timeout(OPEN_TIMEOUT, async {
            let token = match &target.token_file {
                Some(file) => Some(token(file).await.map_err(LinkError::Token)?),
                None => None,
            };
            let stream = TcpStream::connect(&*target.address)
                .await
                .map_err(LinkError::Io)?;
            stream.set_nodelay(true).map_err(LinkError::Io)?;
            let (read, mut write) = Self::halves(stream, target).await?;
            let hello = Hello {
                proto: vec![VERSION],
                producer: identity.producer,
                epoch: identity.epoch,
                next_seq,
                codecs: vec![
                    Compression::Gzip.as_str().into(),
                    Compression::None.as_str().into(),
                ],
                max_frame: MAX_PAYLOAD,
                token,
                router: shared.host.clone(),
                version: env!("CARGO_PKG_VERSION").into(),
            };
            let mut hello = control(&Frame::Hello(hello));
            write
                .write_all_buf(&mut hello)
                .await
                .map_err(LinkError::Io)?;
            write.flush().await.map_err(LinkError::Io)?;
            let mut read = FramedRead::new(read, Codec::default());
            let welcome = match receive(&mut read).await? {
                Decoded::Frame(Frame::Welcome(welcome)) => welcome,
                Decoded::Frame(Frame::GoAway(away)) => {
                    return Err(LinkError::Refused(away.code, away.text));
                }
                Decoded::Frame(Frame::Nack(nack)) => {
                    return Err(LinkError::Refused(GoAwayCode::Auth, nack.text));
                }
                Decoded::Frame(_) => return Err(LinkError::OutOfPlace),
                Decoded::Bad(bad) => return Err(LinkError::Bad(bad.fault)),
            };
            Self::welcomed(read, write, &welcome, shared)
        });
        opened.await.map_err(|_| LinkError::Timeout)?
    }

    async fn halves(stream: TcpStream, target: &Target) -> Result<Halves, LinkError> {
        let Some(tls) = &target.tls else {
            let (read, write) = stream.into_split();
            return Ok((Box::new(read), Box::new(write)));
        };
        let stream = tls::over(stream, &target.address, tls)
            .await
            .map_err(LinkError::Tls)?;
        let (read, write) = tokio::io::split(stream);
        Ok((Box::new(read), Box::new(write)))
    }

    fn welcomed(
        read: FromReceiver,
        write: Box<dyn AsyncWrite + Send + Unpin>,
        welcome: &Welcome,
        shared: &Shared,
    ) -> Result<Self, LinkError> {
        if welcome.proto != VERSION {
            return Err(LinkError::Version(welcome.proto));
        }
        let packs = Compression::from_name(&welcome.codec) == Some(Compression::Gzip);
        shared.negotiated(packs, welcome.max_frame);
        Ok(Self {
            read,
            write,
            last_durable: welcome.last_durable_seq,
            window_bytes: welcome.window_bytes,
            window_frames: usize::try_from(welcome.window_frames).unwrap_or(usize::MAX),
        })
    }
}

/// Reads the next frame. Cancel safe.
pub(super) async fn receive(read: &mut FromReceiver) -> Result<Decoded, LinkError> {
    match read.next().await {
        Some(Ok(decoded)) => Ok(decoded),
        Some(Err(DecodeError::Io(error))) => Err(LinkError::Io(error)),
        Some(Err(error)) => Err(LinkError::Decode(error)),
        None => Err(LinkError::Closed),
    }
}

/// Encodes a frame that carries no data.
pub(super) fn control(frame: &Frame) -> Bytes {
    let mut bytes = BytesMut::new();
    codec::encode(frame, Compression::None, &mut bytes)
        .expect("a HELLO with a bounded token, and frames without payload, have a form");
    bytes.freeze()
}

async fn token(file: &Path) -> io::Result<String> {
    let mut token = String::new();
    tokio::fs::File::open(file)
        .await?
        .take(TOKEN_MAX + 1)
        .read_to_string(&mut token)
        .await?;
    if token.len() as u64 > TOKEN_MAX {
        return Err(io::Error::other("it is larger than 4096 bytes"));
    }
    if token.trim_ascii().is_empty() {
        return Err(io::Error::other("it is empty"));
    }
    Ok(token.trim_ascii().to_owned())
}
