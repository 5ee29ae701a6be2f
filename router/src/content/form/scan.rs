//! The scan of a form in chunks of any size.

use std::ops::Range;

use http::{HeaderMap, header};
use memchr::memmem::{self, Finder};

use super::{Form, FormError, HEAD_MAX, MODEL_MAX, PARTS_MAX, TEXT_MAX, params};

/// A scan of a form under way.
#[derive(Debug)]
pub struct FormScan {
    /// CRLF, two dashes and the boundary.
    delimiter: Finder<'static>,
    place: Place,
    /// Bytes of the body that are not judged yet.
    pending: Vec<u8>,
    /// Where `pending` begins in the body.
    base: usize,
    /// How much of `pending` holds no delimiter for sure.
    searched: usize,
    parts: usize,
    text_bytes: usize,
    fields: Vec<(String, String)>,
    model: Option<Range<usize>>,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// The first boundary.
    Begin,
    /// The rest of a boundary's line.
    BoundaryLine,
    /// The head of a part.
    Head,
    /// The contents of a text field.
    Text { name: String },
    /// The contents of a file.
    File,
    /// Whatever follows the closing boundary.
    End,
}

/// The part that a head begins.
struct Part {
    name: String,
    is_file: bool,
    is_encoded: bool,
}

impl FormScan {
    /// A scan by the boundary that a request's head names.
    ///
    /// # Errors
    /// [`FormError::Boundary`].
    pub fn new(headers: &HeaderMap) -> Result<Self, FormError> {
        let boundary = boundary(headers).ok_or(FormError::Boundary)?;
        let delimiter = [b"\r\n--", &*boundary].concat();
        Ok(Self {
            delimiter: Finder::new(&delimiter).into_owned(),
            place: Place::Begin,
            pending: Vec::new(),
            base: 0,
            searched: 0,
            parts: 0,
            text_bytes: 0,
            fields: Vec::new(),
            model: None,
        })
    }

    /// Reads on.
    ///
    /// # Errors
    /// [`FormError`]; the scan is over.
    pub fn feed(&mut self, data: &[u8]) -> Result<(), FormError> {
        if self.place == Place::End {
            return Ok(());
        }
        self.pending.extend_from_slice(data);
        while self.step()? {}
        Ok(())
    }

    /// The whole form.
    ///
    /// # Errors
    /// [`FormError::Cut`].
    pub fn end(self) -> Result<Form, FormError> {
        match self.place {
            Place::End => Ok(Form::of(self.fields, self.model)),
            _ => Err(FormError::Cut),
        }
    }

    /// Whether a file has begun, which may be long.
    pub fn has_file(&self) -> bool {
        self.place == Place::File
    }

    /// Whether the model was read.
    pub fn has_model(&self) -> bool {
        self.model.is_some()
    }

    /// Whether the closing boundary was read.
    pub fn has_ended(&self) -> bool {
        self.place == Place::End
    }

    /// What was read so far.
    pub fn so_far(&self) -> Form {
        Form::of(self.fields.clone(), self.model.clone())
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.pending.len()
    }

    /// Takes the next item off `pending`. Returns `false` when more bytes are needed.
    fn step(&mut self) -> Result<bool, FormError> {
        match &self.place {
            Place::Begin => self.begin(),
            Place::BoundaryLine => self.boundary_line(),
            Place::Head => self.head(),
            Place::Text { .. } => self.text(),
            Place::File => Ok(self.file()),
            Place::End => {
                self.pending = Vec::new();
                Ok(false)
            }
        }
    }

    fn begin(&mut self) -> Result<bool, FormError> {
        // Some clients put an empty line in front; the CRLF then belongs to the delimiter.
        let delimiter = self.delimiter.needle();
        let expected = match self.pending.first() {
            Some(b'\r') => delimiter,
            _ => &delimiter[2..],
        };
        let known = expected.len().min(self.pending.len());
        if self.pending[..known] != expected[..known] {
            return Err(FormError::Begin);
        }
        let is_whole = known == expected.len();
        if is_whole {
            self.take(known, Place::BoundaryLine);
        }
        Ok(is_whole)
    }

    fn boundary_line(&mut self) -> Result<bool, FormError> {
        /// Blanks that RFC 2046 allows behind a boundary.
        const BLANKS_MAX: usize = 64;
        if self.pending.starts_with(b"--") {
            self.take(2, Place::End);
            return Ok(true);
        }
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let blanks = self
            .pending
            .iter()
            .take_while(|byte| is_blank(byte))
            .count();
        match &self.pending[blanks..] {
            [b'\r', b'\n', ..] if blanks <= BLANKS_MAX => {
                self.take(blanks + 2, Place::Head);
                Ok(true)
            }
            [] | [b'\r'] if blanks <= BLANKS_MAX => Ok(false),
            [b'-'] if blanks == 0 => Ok(false),
            _ => Err(FormError::BoundaryLine),
        }
    }

    fn head(&mut self) -> Result<bool, FormError> {
        let head = &self.pending[..self.pending.len().min(HEAD_MAX)];
        let Some(end) = memmem::find(head, b"\r\n\r\n") else {
            return match self.pending.len() < HEAD_MAX {
                true => Ok(false),
                false => Err(FormError::HeadTooLarge),
            };
        };
        let Part {
            name,
            is_file,
            is_encoded,
        } = Part::of(&head[..end]).ok_or(FormError::Disposition)?;
        self.parts += 1;
        if self.parts > PARTS_MAX {
            return Err(FormError::TooManyParts);
        }
        if name == "model" {
            if self.model.is_some() {
                return Err(FormError::TwoModels);
            }
            if is_file || is_encoded {
                return Err(FormError::Model);
            }
        }
        let place = match is_file {
            true => Place::File,
            false => Place::Text { name },
        };
        self.take(end + 4, place);
        Ok(true)
    }

    fn text(&mut self) -> Result<bool, FormError> {
        let found = self.find_delimiter();
        // The end of `pending` may be the beginning of the delimiter.
        let length = found.unwrap_or(self.searched);
        if self.text_bytes + length > TEXT_MAX {
            return Err(FormError::TextTooLong);
        }
        let Some(end) = found else {
            return Ok(false);
        };
        self.text_bytes += end;
        let at = self.base..self.base + end;
        let value = str::from_utf8(&self.pending[..end]).map(str::to_owned);
        let place = self.take(end + self.delimiter.needle().len(), Place::BoundaryLine);
        let Place::Text { name } = place else {
            return Ok(true);
        };
        if name == "model" {
            let is_name = |value: &str| {
                (1..=MODEL_MAX).contains(&value.len()) && !value.chars().any(char::is_control)
            };
            if !value.as_deref().is_ok_and(is_name) {
                return Err(FormError::Model);
            }
            self.model = Some(at);
        }
        // Text in another encoding is a value that no rule and no session source can name.
        if let Ok(value) = value {
            self.fields.push((name, value));
        }
        Ok(true)
    }

    fn file(&mut self) -> bool {
        let length = self.delimiter.needle().len();
        match self.find_delimiter() {
            Some(end) => {
                self.take(end + length, Place::BoundaryLine);
                true
            }
            None => {
                let gone = self.pending.len().saturating_sub(length - 1);
                self.take(gone, Place::File);
                false
            }
        }
    }

    fn find_delimiter(&mut self) -> Option<usize> {
        let found = self.delimiter.find(&self.pending[self.searched..]);
        let found = found.map(|at| self.searched + at);
        if found.is_none() {
            let open = self.delimiter.needle().len() - 1;
            self.searched = self.pending.len().saturating_sub(open);
        }
        found
    }

    /// Drops the first `count` pending bytes. Returns the place before.
    fn take(&mut self, count: usize, next: Place) -> Place {
        self.pending.drain(..count);
        self.base += count;
        self.searched = 0;
        std::mem::replace(&mut self.place, next)
    }
}

impl Part {
    /// Reads a part's head, without the empty line behind it.
    fn of(head: &[u8]) -> Option<Self> {
        let mut disposition = None;
        let mut is_encoded = false;
        for line in head.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            // A folded line begins with a blank, which no header's name does.
            let colon = memchr::memchr(b':', line)?;
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            if name.is_empty() || name.iter().any(|byte| !byte.is_ascii_graphic()) {
                return None;
            }
            if name.eq_ignore_ascii_case(b"content-disposition") {
                if disposition.replace(value).is_some() {
                    return None;
                }
            } else if name.eq_ignore_ascii_case(b"content-transfer-encoding") {
                let plain: [&[u8]; 3] = [b"7bit", b"8bit", b"binary"];
                is_encoded |= !plain.iter().any(|plain| value.eq_ignore_ascii_case(plain));
            }
        }
        let (kind, params) = params::parse(disposition?)?;
        let name = params::only(&params, "name").ok()??;
        let has_file_name = params.iter().any(|(name, _)| {
            let base = name.split(|byte| *byte == b'*').next().unwrap_or(name);
            base.eq_ignore_ascii_case(b"filename")
        });
        kind.eq_ignore_ascii_case(b"form-data").then(|| Self {
            name: String::from_utf8_lossy(name).into_owned(),
            is_file: has_file_name,
            is_encoded,
        })
    }
}

/// The boundary of a form.
fn boundary(headers: &HeaderMap) -> Option<Vec<u8>> {
    let mut declared = headers.get_all(header::CONTENT_TYPE).iter();
    let value = declared.next().filter(|_| declared.next().is_none())?;
    let (_, params) = params::parse(value.as_bytes())?;
    let boundary = params::only(&params, "boundary").ok()??;
    let is_char = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    let is_boundary = (1..=70).contains(&boundary.len())
        && boundary.iter().all(is_char)
        && !boundary.ends_with(b" ");
    is_boundary.then(|| boundary.to_vec())
}
