//! The fields of a form.

use axum::extract::Multipart;
use axum::extract::multipart::MultipartError;
use bytes::Bytes;

use crate::failure::Failure;

/// A form that was read to its end.
#[derive(Debug, Default)]
pub(super) struct Form {
    /// Name, file name and contents, in order.
    fields: Vec<(String, Option<String>, Bytes)>,
}

impl Form {
    /// Reads a form.
    ///
    /// # Errors
    /// 400.
    pub(super) async fn read(mut form: Multipart) -> Result<Self, Failure> {
        let bad = |error: MultipartError| Failure::new(error.status(), error.body_text());
        let mut read = Self::default();
        while let Some(field) = form.next_field().await.map_err(bad)? {
            let name = field.name().unwrap_or_default().to_owned();
            let file = field.file_name().map(str::to_owned);
            read.fields
                .push((name, file, field.bytes().await.map_err(bad)?));
        }
        Ok(read)
    }

    /// The text of a field.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let (.., text) = self.fields.iter().find(|(field, ..)| field == name)?;
        str::from_utf8(text).ok()
    }

    /// The file of a field: its name and contents.
    ///
    /// # Errors
    /// 400 when there is none.
    pub(super) fn file(&self, name: &'static str) -> Result<(&str, &Bytes), Failure> {
        let file = self.fields.iter().find_map(|(field, file, contents)| {
            (field == name).then_some((file.as_deref()?, contents))
        });
        file.ok_or_else(|| Failure::invalid(name, format!("The form needs a file `{name}`.")))
    }
}
