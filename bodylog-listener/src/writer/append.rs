//! The open file of an output. A batch is appended completely or not at all.

use std::io::{self, IoSlice};
use std::path::PathBuf;

use proto::layout::Hour;

use crate::ledger::Position;
use crate::storage::{SegmentFile, Storage};

/// Most slices per write, the limit of Linux.
const SLICES_MAX: usize = 1024;
/// Most bytes per write. For larger writes the kernel uses memory blocks so large that a virtual
/// machine may first have to get them from its host: some of these writes took ten times as long.
const WRITE_MAX: usize = 256 << 10;

const VANISHES: &str = "the file of the hour is removed again and again";

/// The file of the current hour.
pub(super) struct Segment {
    root: PathBuf,
    dir: PathBuf,
    is_synced: bool,
    open: Option<Open>,
    last: Option<Position>,
    /// A file that still contains bytes of a failed batch, and its length without them.
    spoilt: Option<(Hour, u64)>,
}

struct Open {
    hour: Hour,
    file: Box<dyn SegmentFile>,
    len: u64,
}

/// The result of an append.
#[derive(Clone, Copy, Debug)]
pub(super) struct Appended {
    /// Bytes appended.
    pub(super) bytes: u64,
    /// Whether the file was opened for this append and its last line was torn.
    pub(super) sealed: bool,
    /// Whether this hour's file had been removed or renamed, and was created again.
    pub(super) vanished: bool,
}

impl Segment {
    /// Manages the files below `dir`, which is `root` or below it.
    pub(super) fn new(root: PathBuf, dir: PathBuf, is_synced: bool) -> Self {
        Self {
            root,
            dir,
            is_synced,
            open: None,
            last: None,
            spoilt: None,
        }
    }

    /// Closes the open file if it was removed or renamed. Returns whether it was. The next file at
    /// its path starts empty.
    pub(super) fn let_go_if_vanished(&mut self) -> io::Result<bool> {
        let Some(open) = &self.open else {
            return Ok(false);
        };
        if open.file.is_in_place()? {
            return Ok(false);
        }
        self.last = Some(Position {
            hour: open.hour,
            offset: 0,
        });
        self.open = None;
        Ok(true)
    }

    /// Closes the file if it belongs to another hour. Returns whether it did.
    pub(super) fn close_unless(&mut self, hour: Hour) -> bool {
        self.open.take_if(|open| open.hour != hour).is_some()
    }

    /// The file last written and its valid length.
    pub(super) fn position(&self) -> Option<Position> {
        self.last.clone()
    }

    /// Appends the lines. Returns once they are durable under the hour's path. After an error the
    /// file is restored; if that fails too, nothing is appended to it until it is restored.
    pub(super) fn append(
        &mut self,
        storage: &dyn Storage,
        hour: Hour,
        lines: &[&[u8]],
    ) -> io::Result<Appended> {
        let vanished = self.let_go_if_vanished()?;
        let appended = self.append_once(storage, hour, lines)?;
        // The file was removed during the write: write the lines to its successor. Retry only once;
        // if files keep disappearing, the error reports it.
        let Some(appended) = appended else {
            let appended = self.append_once(storage, hour, lines)?;
            let appended = appended.ok_or_else(|| io::Error::other(VANISHES))?;
            return Ok(Appended {
                vanished: true,
                ..appended
            });
        };
        Ok(Appended {
            vanished,
            ..appended
        })
    }

    /// `None` if the file was removed or renamed meanwhile: the lines are not in it.
    fn append_once(
        &mut self,
        storage: &dyn Storage,
        hour: Hour,
        lines: &[&[u8]],
    ) -> io::Result<Option<Appended>> {
        let mut sealed = false;
        if let Some((spoilt, good)) = self.spoilt {
            let mut opened = storage.open(&self.root, &self.dir.join(spoilt.plain()))?;
            opened.file.truncate(good)?;
            opened.file.sync()?;
            self.spoilt = None;
        }
        if self.open.is_none() {
            let opened = storage.open(&self.root, &self.dir.join(hour.plain()))?;
            sealed = opened.sealed;
            self.open = Some(Open {
                hour,
                file: opened.file,
                len: opened.len,
            });
        }
        let open = self.open.as_mut().expect("opened above");
        let good = open.len;
        let written = write_all(&mut *open.file, lines).and_then(|bytes| {
            if self.is_synced {
                open.file.sync()?;
            }
            Ok((bytes, open.file.is_in_place()?))
        });
        match written {
            Ok((_, false)) => {
                // Remove the lines, so that they are not found twice if the file comes back.
                open.file.truncate(good)?;
                self.let_go_if_vanished()?;
                Ok(None)
            }
            Ok((bytes, true)) => {
                open.len += bytes;
                self.last = Some(Position {
                    hour,
                    offset: open.len,
                });
                Ok(Some(Appended {
                    bytes,
                    sealed,
                    vanished: false,
                }))
            }
            Err(error) => {
                if open.file.truncate(good).is_err() {
                    self.spoilt = Some((hour, good));
                    self.open = None;
                }
                Err(error)
            }
        }
    }
}

/// Writes all slices, in pieces: see [`WRITE_MAX`].
fn write_all(file: &mut dyn SegmentFile, lines: &[&[u8]]) -> io::Result<u64> {
    let mut bytes = 0;
    let mut pieces = lines
        .iter()
        .flat_map(|lines| lines.chunks(WRITE_MAX))
        .peekable();
    while pieces.peek().is_some() {
        let mut slices = Vec::new();
        let mut len = 0;
        while slices.len() < SLICES_MAX
            && let Some(piece) = pieces.next_if(|piece| len + piece.len() <= WRITE_MAX)
        {
            len += piece.len();
            slices.push(IoSlice::new(piece));
        }
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match file.write_vectored(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    bytes += n as u64;
                    IoSlice::advance_slices(&mut rest, n);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(bytes)
}
